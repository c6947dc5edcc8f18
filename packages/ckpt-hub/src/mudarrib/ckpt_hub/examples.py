"""Random augmentation that comes out the same on resume, in whichever worker."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

Example = TypeVar("Example", covariant=True)


class MapStyle(Protocol[Example]):
    """What is indexed by number and has a length."""

    def __getitem__(self, index: int, /) -> Example: ...
    def __len__(self) -> int: ...


class SeededExamples(Dataset[Example]):
    """A map-style data set each of whose examples is made with random generators seeded for it.

    A `DataLoader` seeds its workers once an epoch, so what is drawn for an example depends on all that its worker
    made before; in the middle of an epoch that can't be resumed. Here the seed is a function of (seed, epoch, index)
    alone: Python's, NumPy's and torch's global generators start from it for each example, with any number of
    workers, on any rank. In the main process they are put back afterwards.

    Args:
        data: The data set.
        seed: The same value draws the same for each example and epoch.
    """

    def __init__(self, data: MapStyle[Example], seed: int = 0) -> None:
        self.data = data
        self.seed = seed
        # In shared memory, so that workers which live on from epoch to epoch see it move.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]  # torch's own

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch begins, from 0; call it before the loader's iterator is made."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Example:
        with _seeded(f"{self.seed}-{int(self._epoch)}-{index}"):
            return self.data[index]


@contextmanager
def _seeded(text: str) -> Iterator[None]:
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    in_worker = get_worker_info() is not None
    before = None if in_worker else (random.getstate(), np.random.get_state(), torch.get_rng_state())
    random.seed(number)
    np.random.seed(number % 2**32)
    torch.default_generator.manual_seed(number >> 1)
    try:
        yield
    finally:
        if before is not None:
            random.setstate(before[0])
            np.random.set_state(before[1])
            torch.set_rng_state(before[2])
