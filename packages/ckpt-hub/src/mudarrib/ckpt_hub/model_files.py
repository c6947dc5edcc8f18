"""A model's own files inside a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from .snapshot import Copy


class Pretrained(Protocol):
    """A model that writes itself, as those of transformers, peft and diffusers do."""

    def state_dict(self) -> dict[str, Any]: ...
    def save_pretrained(self, save_directory: Path, *, state_dict: dict[str, Any]) -> object: ...


class ModelFiles:
    """Writes a model by its `save_pretrained`, in background mode from the snapshot.

    For `store.save(..., extra_files={"model": ModelFiles(model)})`.

    Args:
        model: Has `state_dict()` and `save_pretrained(folder, state_dict=...)`.
        state_dict: Gives the state to write where it isn't the model's own, such as one gathered from shards.
    """

    def __init__(self, model: Pretrained, state_dict: Callable[[], dict[str, Any]] | None = None) -> None:
        self._model = model
        self._state_dict = state_dict or model.state_dict

    def capture(self, copy: Copy) -> Callable[[Path], object]:
        """Take the state now; the result writes it later."""
        state = copy(self._state_dict())
        return lambda folder: self._model.save_pretrained(folder, state_dict=state)

    def __call__(self, folder: Path) -> None:
        """Write the model as it is now."""
        self.capture(lambda tree: tree)(folder)
