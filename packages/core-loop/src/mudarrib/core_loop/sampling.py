"""The order of examples: a pure function of (seed, epoch, consumed), the same for every world size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Sized

import numpy as np
import torch
from torch.utils.data import Sampler

from .errors import ArgumentError


def order(seed: int, epoch: int, n_examples: int) -> torch.Tensor:
    """Permutation of the examples for one epoch: the first draw of a generator seeded with seed + epoch.

    Args:
        seed: Base seed; the same value gives the same order on any device.
        epoch: Epoch number, from 0.
        n_examples: Number of examples, at least 1.

    Returns:
        int64 tensor, shape (n_examples,), each index once.

    Raises:
        ArgumentError: n_examples < 1.
    """
    if n_examples < 1:
        raise ArgumentError("n_examples", n_examples, "a data set needs at least one row")
    return torch.randperm(n_examples, generator=torch.Generator().manual_seed(seed + epoch))


def length_grouped_order(lengths: np.ndarray, batch_size: int, seed: int, epoch: int) -> torch.Tensor:
    """A permutation in which each batch holds rows of similar length, and the longest row comes first.

    The shuffled rows are cut into chunks of up to 50 batches, each sorted by falling length.

    Args:
        lengths: Length of each row, shape (n_examples,).
        batch_size: Rows of an optimizer step.
        seed: Base seed.
        epoch: Epoch number, from 0.
    """
    n = len(lengths)
    shuffled = order(seed, epoch, n).numpy()
    chunk = max(1, min(n // (batch_size * 4), 50)) * batch_size
    chunk_of = np.arange(n) // chunk
    grouped = shuffled[np.lexsort((np.arange(n), -lengths[shuffled], chunk_of))]
    starts = np.arange(0, n, chunk)
    longest = starts[np.argmax(lengths[grouped[starts]])]
    grouped[[0, longest]] = grouped[[longest, 0]]
    return torch.from_numpy(grouped)


class ResumableSampler(Sampler[int]):
    """Row numbers of an epoch, from any point on; `set_epoch` chooses the epoch and where to start.

    Args:
        data_source: The data set, or anything with its length.
        seed: Base seed of the permutation.
        shuffle: False for the data's own order.
        lengths: If given, rows are grouped by length into batches of `batch_size`.
        batch_size: See `lengths`.
    """

    def __init__(
        self,
        data_source: Sized,
        seed: int = 0,
        shuffle: bool = True,
        lengths: Sequence[int] | None = None,
        batch_size: int = 1,
    ) -> None:
        self.data_source = data_source
        self.seed = seed
        self.shuffle = shuffle
        self.lengths: np.ndarray | None = None if lengths is None else np.asarray(lengths)
        self.batch_size = batch_size
        self.epoch: int = 0
        self.start: int = 0

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose the epoch of the next pass, and how many of its rows have been consumed."""
        self.epoch = epoch
        self.start = start

    def indices(self) -> torch.Tensor:
        """All row numbers of the chosen epoch, in order, int64."""
        n = len(self.data_source)
        if not self.shuffle:
            return torch.arange(n)
        if self.lengths is not None:
            return length_grouped_order(self.lengths, self.batch_size, self.seed, self.epoch)
        return order(self.seed, self.epoch, n)

    def __iter__(self) -> Iterator[int]:
        yield from self.indices()[self.start :].tolist()

    def __len__(self) -> int:
        return len(self.data_source)


class ProcessBatches(Sampler[list[int]]):
    """The batches of one process: consecutive batches of the common order are dealt out in turn.

    With the same rows per step in all, another number of processes sees the same rows in each step. Every row
    is seen once: what is left for a last round is shared out evenly, and a process left without a row repeats
    one row of that round, to keep in step with the others; `own_rows` says so.

    Args:
        sampler: Gives the order of all rows.
        batch_size: Rows of a batch in one process.
        drop_last: Leave out a last round that is not whole.
        rank: This process.
        world_size: Number of processes.
    """

    def __init__(
        self, sampler: Sampler[int], batch_size: int, drop_last: bool = False, rank: int = 0, world_size: int = 1
    ) -> None:
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.rank = rank
        self.world_size = world_size
        self.start: int = 0

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose the epoch of the next pass, and how many rows of it, over all processes, have been consumed."""
        set_epoch = getattr(self.sampler, "set_epoch", None)
        if isinstance(self.sampler, ResumableSampler):
            self.sampler.set_epoch(epoch, start)
            self.start = 0
        else:
            if set_epoch is not None:
                set_epoch(epoch)
            self.start = start

    def __iter__(self) -> Iterator[list[int]]:
        round_size = self.batch_size * self.world_size
        chunk: list[int] = []
        for position, index in enumerate(self.sampler):
            if position < self.start:
                continue
            chunk.append(index)
            if len(chunk) == round_size:
                yield chunk[self.rank * self.batch_size : (self.rank + 1) * self.batch_size]
                chunk = []
        if chunk and not self.drop_last:
            yield self._share_of_last(chunk)

    def _share_of_last(self, chunk: list[int]) -> list[int]:
        base, extra = divmod(len(chunk), self.world_size)
        begin = self.rank * base + min(self.rank, extra)
        return chunk[begin : begin + base + (self.rank < extra)] or chunk[:1]

    def own_rows(self, number: int) -> int:
        """Rows of the `number`-th batch of an epoch that are this process's own."""
        rounds, left = divmod(len(self.sampler), self.batch_size * self.world_size)  # type: ignore[arg-type]  # see __len__
        if number < rounds:
            return self.batch_size
        base, extra = divmod(left, self.world_size)
        return base + (self.rank < extra)

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]  # torch's Sampler promises no length, every sampler here has one
        round_size = self.batch_size * self.world_size
        return n // round_size if self.drop_last else math.ceil(n / round_size)
