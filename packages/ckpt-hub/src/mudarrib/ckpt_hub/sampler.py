"""The order of examples as a function of seed, epoch and position, so that resuming needs no walk through the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .errors import CheckpointError
from .ranks import rank as own_rank
from .ranks import world_size as own_world_size


def order(seed: int, epoch: int, n_examples: int) -> torch.Tensor:
    """The permutation of the examples in one epoch.

    Args:
        seed: The same value gives the same order on every machine.
        epoch: From 0; each has an order of its own.
        n_examples: Number of examples.

    Returns:
        int64 tensor, shape (n_examples,), each index once.
    """
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
    return torch.randperm(n_examples, generator=generator)


class ResumableBatches:
    """A batch sampler for `DataLoader(batch_sampler=...)` that starts where a checkpoint stopped, at once.

    Its position counts examples over all ranks and moves only by `advance`, which the loop calls after each batch:
    the loader's workers run ahead, and what they have drawn is not yet learnt from. So a checkpoint also continues
    on another number of ranks or with another batch size: the examples follow in the same order.

    Args:
        n_examples: Length of the data set.
        batch_size: Examples a rank and batch.
        seed: Of the order.
        shuffle: False takes the examples as they come.
        drop_last: Leave out a last batch that is not full. Otherwise it is short on one rank, and filled up from the
            front of the order on several, since all ranks must have equally many.
        rank: This rank; None for torch.distributed's.
        world_size: Number of ranks; None for torch.distributed's.

    Raises:
        CheckpointError: `n_examples` or `batch_size` is below 1.
    """

    def __init__(
        self,
        n_examples: int,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        for name, value in (("n_examples", n_examples), ("batch_size", batch_size)):
            if value < 1:
                raise CheckpointError(name, value, "Give at least 1.")
        self.n_examples = n_examples
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.rank: int = own_rank() if rank is None else rank
        self.world_size: int = own_world_size() if world_size is None else world_size
        self.epoch: int = 0
        self.consumed: int = 0

    @property
    def total_batch_size(self) -> int:
        """Examples of a batch over all ranks."""
        return self.batch_size * self.world_size

    def __len__(self) -> int:
        """Batches left in this epoch."""
        left = self.n_examples - self.consumed
        return left // self.total_batch_size if self.drop_last else -(-left // self.total_batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """This rank's batches from the position to the end of the epoch."""
        indices = order(self.seed, self.epoch, self.n_examples) if self.shuffle else torch.arange(self.n_examples)
        # The position may move while this runs: where it began is what counts.
        for start in [self.consumed + number * self.total_batch_size for number in range(len(self))]:
            batch = indices[start : start + self.total_batch_size]
            if self.world_size > 1 and len(batch) < self.total_batch_size:
                batch = indices[(start + torch.arange(self.total_batch_size)) % self.n_examples]
            yield batch[self.rank * self.batch_size : (self.rank + 1) * self.batch_size].tolist()

    def advance(self, batches: int = 1) -> None:
        """Note that the loop has learnt from so many batches; at the end of the data the next epoch begins."""
        self.consumed += batches * self.total_batch_size
        if len(self) <= 0:
            self.epoch, self.consumed = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """The position, and what it only means something with."""
        return {"epoch": self.epoch, "consumed": self.consumed, "seed": self.seed, "n_examples": self.n_examples}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go to a saved position.

        Raises:
            CheckpointError: It was saved with another seed or another number of examples.
        """
        for name in ("seed", "n_examples"):
            if state_dict[name] != getattr(self, name):
                raise CheckpointError(
                    name,
                    f"{getattr(self, name)}, but {state_dict[name]} in the checkpoint",
                    "Use the same data and seed.",
                )
        self.epoch, self.consumed = state_dict["epoch"], state_dict["consumed"]
