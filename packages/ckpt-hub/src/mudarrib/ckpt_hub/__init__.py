"""Checkpoints that are never half there, exact resume, and pushes to the hub that finish."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ._version import __version__

if TYPE_CHECKING:
    from .convert import from_peers, to_peers
    from .errors import CheckpointError
    from .examples import SeededExamples
    from .hub.card import model_card
    from .hub.push import HubPusher
    from .model_files import ModelFiles
    from .rng import RngState
    from .sampler import ResumableBatches
    from .sharded import ShardedState, export_model
    from .stateful import Stateful
    from .store import CheckpointStore, Saved

_HOMES = {
    "CheckpointError": "errors",
    "CheckpointStore": "store",
    "HubPusher": "hub.push",
    "ModelFiles": "model_files",
    "ResumableBatches": "sampler",
    "RngState": "rng",
    "Saved": "store",
    "SeededExamples": "examples",
    "ShardedState": "sharded",
    "Stateful": "stateful",
    "export_model": "sharded",
    "from_peers": "convert",
    "model_card": "hub.card",
    "to_peers": "convert",
}

__all__ = [
    "CheckpointError",
    "CheckpointStore",
    "HubPusher",
    "ModelFiles",
    "ResumableBatches",
    "RngState",
    "Saved",
    "SeededExamples",
    "ShardedState",
    "Stateful",
    "__version__",
    "export_model",
    "from_peers",
    "model_card",
    "to_peers",
]


def __getattr__(name: str) -> object:
    # Lazy: torch takes seconds to import, and the command line's --help needs none of it.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
