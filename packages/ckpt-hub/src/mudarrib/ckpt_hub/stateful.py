"""What the store can save: anything with `state_dict` and `load_state_dict`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Stateful(Protocol):
    """A module, an optimizer, a scheduler, a data loader, or an object of your own.

    A class attribute `per_rank = True` says that the state differs between the ranks of a distributed run:
    each rank then writes, and gets back, its own. `RngState` is such a part.
    """

    def state_dict(self) -> dict[str, Any]:
        """The state as nested dicts, lists, tuples, numbers, strings, bytes, tensors and arrays."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object:
        """Put such a state back."""
        ...


def is_per_rank(part: Stateful) -> bool:
    """Whether each rank keeps a state of its own for `part`."""
    return bool(getattr(part, "per_rank", False))


@runtime_checkable
class Shardable(Stateful, Protocol):
    """A part of which every rank writes, and reads, its own share of one state; `ShardedState` is one."""

    def save_shards(self, folder: Path, /) -> Any:
        """Write this rank's share; the JSON that describes the whole."""
        ...

    def load_shards(self, folder: Path, tree: Any, /) -> dict[str, Any]:
        """Read this rank's share, for `load_state_dict`."""
        ...
