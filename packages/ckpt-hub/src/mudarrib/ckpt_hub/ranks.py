"""The processes of a distributed run, as far as saving concerns them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist

from .errors import CheckpointError

T = TypeVar("T")


def world_size() -> int:
    """Number of ranks; 1 without torch.distributed."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """This process's number, from 0."""
    return dist.get_rank() if world_size() > 1 else 0


@contextmanager
def together() -> Iterator[None]:
    """Run the block on every rank, and end it on all at once: an error on one is an error on all.

    Raises:
        CheckpointError: The block failed on another rank. The rank that failed raises its own error.
    """
    error: BaseException | None = None
    try:
        yield
    except BaseException as caught:
        error = caught
    failed = _first_failed(error is not None)
    if error is not None:
        raise error
    if failed is not None:
        raise CheckpointError("checkpoint", f"rank {failed} failed", "See the error of that rank.")


def _first_failed(failed: bool) -> int | None:
    if world_size() == 1:
        return None
    none = world_size()
    lowest = torch.tensor(rank() if failed else none, device=_device())
    dist.all_reduce(lowest, dist.ReduceOp.MIN)
    return None if lowest.item() == none else int(lowest.item())


def from_first(value: T) -> T:
    """Rank 0's value, on every rank."""
    if world_size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0, device=_device())
    return box[0]


def _device() -> torch.device:
    """Where the group's collectives want their tensors."""
    if "nccl" in dist.get_backend():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
