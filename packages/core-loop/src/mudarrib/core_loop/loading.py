"""Loaders that start anywhere in an epoch and give the same rows whoever fetches them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from .sampling import ProcessBatches


class NumberedBatch(list[int]):
    """Row numbers of a batch that knows its place in the run, from which a worker is seeded."""

    key: tuple[int, ...] = ()


class NumberedBatches(Sampler[list[int]]):
    """The batches of a sampler, numbered."""

    def __init__(self, batches: ProcessBatches, seed: int) -> None:
        self.batches = batches
        self.seed = seed
        self.epoch = 0
        self.first = 0

    def __iter__(self) -> Iterator[list[int]]:
        for number, rows in enumerate(self.batches, self.first):
            batch = NumberedBatch(rows)
            batch.key = (self.seed, self.epoch, number, self.batches.rank)
            yield batch

    def __len__(self) -> int:
        return len(self.batches)


class SeededRows(Dataset[Any]):
    """Seeds Python, NumPy and torch from the batch's number before its rows are read.

    A worker's generators would otherwise depend on what it had read before, so that a resumed run would draw
    other augmentations.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getattr__(self, name: str) -> Any:
        if name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, rows: list[int]) -> Any:
        if isinstance(rows, NumberedBatch):
            words = np.random.SeedSequence(rows.key).generate_state(2)
            random.seed(int(words[0]))
            np.random.seed(int(words[0]))
            torch.manual_seed(int(words[1]))
        return fetch(self.dataset, rows)


def fetch(dataset: Any, rows: list[int]) -> Any:
    """Rows of a map-style data set, at once where it can."""
    read_many = getattr(dataset, "__getitems__", None)
    return read_many(rows) if read_many is not None else [dataset[row] for row in rows]


class BatchLoader(DataLoader[Any]):
    """A DataLoader over rows by number, from any point of any epoch.

    Without workers it reads and collates with no detour. Each epoch draws one number from torch's generator, as
    torch's own loader does, so that what is drawn afterwards (dropout) is the same; a pass that starts within an
    epoch finds that number drawn.
    """

    def __init__(self, dataset: Any, batches: ProcessBatches, collate_fn: Callable[..., Any], **settings: Any) -> None:
        self.batches = batches
        self.within_epoch: bool = False
        self.numbered: NumberedBatches | None = None
        if settings.get("num_workers", 0) > 0:
            self.numbered = NumberedBatches(batches, getattr(batches.sampler, "seed", 0))
            dataset = SeededRows(dataset)
        super().__init__(dataset, batch_sampler=self.numbered or batches, collate_fn=collate_fn, **settings)

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose the epoch of the next pass, and how many of its rows, over all processes, have been consumed."""
        self.batches.set_epoch(epoch, start)
        self.within_epoch = start > 0
        if self.numbered is not None:
            self.numbered.epoch = epoch
            self.numbered.first = start // (self.batches.batch_size * self.batches.world_size)

    def __iter__(self) -> Any:
        if self.num_workers == 0:
            return self._read_here()
        state = torch.get_rng_state()
        iterator = super().__iter__()
        if self.within_epoch:
            torch.set_rng_state(state)
        return iterator

    def _read_here(self) -> Iterator[Any]:
        if not self.within_epoch:
            draw_base_seed()
        dataset, collate = self.dataset, self.collate_fn
        for rows in self.batches:
            yield collate(fetch(dataset, rows))


class StreamLoader(DataLoader[Any]):
    """A DataLoader over an iterable data set, whose place is kept by the data set itself where it can.

    With several processes, consecutive batches are dealt out in turn. A shuffle buffer is not part of a data
    set's state, so such a stream is read again from its start, without making batches of what is left out.
    """

    def __init__(
        self, dataset: Any, collate_fn: Callable[..., Any], rank: int = 0, world_size: int = 1, **settings: Any
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.start: int = 0
        self.is_placed: bool = False
        super().__init__(dataset, collate_fn=collate_fn, **settings)

    @property
    def keeps_place(self) -> bool:
        stateful = hasattr(self.dataset, "state_dict") and hasattr(self.dataset, "load_state_dict")
        return self.num_workers == 0 and stateful and not has_shuffle_buffer(self.dataset)

    def state_dict(self) -> dict[str, Any]:
        return {"dataset": self.dataset.state_dict()} if self.keeps_place else {}  # type: ignore[attr-defined]  # looked for above

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict and self.keeps_place:
            self.dataset.load_state_dict(state_dict["dataset"])  # type: ignore[attr-defined]  # looked for by keeps_place
            self.is_placed = True

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose the epoch of the next pass, and how many of its rows, over all processes, have been consumed."""
        self.start = start
        set_epoch = getattr(self.dataset, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)

    def __iter__(self) -> Any:
        batches = self._read_here() if self.num_workers == 0 else self._read_in_workers()
        return itertools.islice(batches, self.rank, None, self.world_size)

    def _read_in_workers(self) -> Iterator[Any]:
        state = torch.get_rng_state()
        iterator = super().__iter__()
        if self.start > 0:
            torch.set_rng_state(state)
        return itertools.islice(iterator, self.start // (self.batch_size or 1), None)

    def _read_here(self) -> Iterator[Any]:
        if self.start == 0:
            draw_base_seed()
        rows = iter(self.dataset)
        if not self.is_placed:
            rows = itertools.islice(rows, self.start, None)
        self.is_placed = False
        size = self.batch_size or 1
        while batch := list(itertools.islice(rows, size)):
            if len(batch) == size or not self.drop_last:
                yield self.collate_fn(batch)


def has_shuffle_buffer(dataset: Any) -> bool:
    """Whether a `datasets` stream shuffles in a buffer, which its state leaves out."""
    inner = [getattr(dataset, "_ex_iterable", None)]
    while inner:
        step = inner.pop()
        if step is not None and hasattr(step, "buffer_size"):
            return True
        inner += [getattr(step, "ex_iterable", None)] if hasattr(step, "ex_iterable") else []
        inner += getattr(step, "ex_iterables", None) or []
    return getattr(dataset, "_shuffling", None) is not None


def draw_base_seed() -> None:
    torch.empty((), dtype=torch.int64).random_()


def is_iterable_only(dataset: Any) -> bool:
    """Whether rows come only one after the other, without numbers."""
    return isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")


def length(data: Any) -> int | None:
    """len(data), or None where it has none."""
    try:
        return len(data)
    except (TypeError, AttributeError, NotImplementedError):
        return None


def batches_from(loader: Iterable[Any], epoch: int, rows: int, batches: int) -> Iterator[Any]:
    """The batches of an epoch after the first `batches`, which hold `rows` rows over all processes.

    Our own loaders start there; what a user's own loader gives before is read and left out.
    """
    set_epoch = getattr(loader, "set_epoch", None) or getattr(getattr(loader, "sampler", None), "set_epoch", None)
    if isinstance(loader, BatchLoader | StreamLoader):
        loader.set_epoch(epoch, rows)
        return iter(loader)
    if set_epoch is not None:
        set_epoch(epoch)
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator, None)
    return iterator
