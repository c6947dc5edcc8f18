"""A model's own files inside a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from .errors import CheckpointError
from .snapshot import Copy
from .tensors import read_tensors

_WHOLE = "model.safetensors"
_INDEX = f"{_WHOLE}.index.json"


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


def has_weights(files: Collection[str]) -> bool:
    """Whether a model wrote its weights among these files."""
    return _WHOLE in files or _INDEX in files


def read_weights(folder: Path, model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights that a model wrote by `save_pretrained`, in one file or many, for this module.

    Weights that share memory in `model` are one in the file; each of their names gets it.

    Raises:
        CheckpointError: A file is damaged.
    """
    weights: dict[str, torch.Tensor] = {}
    for name in [_WHOLE] if (folder / _WHOLE).exists() else _shards(folder / _INDEX):
        weights |= read_tensors(folder / name)
    names_by_memory: dict[int, list[str]] = {}
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, torch.Tensor) and tensor.numel():
            names_by_memory.setdefault(tensor.data_ptr(), []).append(name)
    for names in names_by_memory.values():
        there = next((weights[name] for name in names if name in weights), None)
        if there is not None:
            weights |= {name: there for name in names if name not in weights}
    return weights


def _shards(index: Path) -> list[str]:
    try:
        names = {Path(str(name)).name for name in json.loads(index.read_bytes())["weight_map"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(str(index), f"damaged ({error})", "Use an older checkpoint.") from error
    return sorted(names)
