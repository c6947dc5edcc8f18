"""A model's weights to and from a folder, without pickle."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from .errors import ArgumentError
from .logs import Logger, get_logger

logger: Logger = get_logger(__name__)
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_model.safetensors"
Put = Callable[[torch.nn.Module, dict[str, Any]], Any]


def save(model: torch.nn.Module, folder: Path, state_dict: dict[str, Any] | None = None) -> None:
    """Write a model into a folder: by its own `save_pretrained`, else as `model.safetensors`.

    Args:
        model: Any module.
        folder: Made if it is not there.
        state_dict: The weights to write, if not those of the model now.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_pretrained: Any = getattr(model, "save_pretrained", None)
    if save_pretrained is not None:
        with no_progress_bar():
            save_pretrained(folder, state_dict=state_dict)
        return
    from safetensors.torch import save_model

    if state_dict is None:
        save_model(model, str(folder / WEIGHTS))
        return
    from safetensors.torch import save_file

    own = {tensor.data_ptr(): name for name, tensor in reversed(state_dict.items()) if tensor.numel()}
    kept = {name: one.contiguous() for name, one in state_dict.items() if own.get(one.data_ptr(), name) == name}
    save_file(kept, folder / WEIGHTS)


@contextlib.contextmanager
def no_progress_bar() -> Iterator[None]:
    """Without the bar that transformers draws over the files it writes, through our own."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def load(model: torch.nn.Module, folder: Path, put: Put) -> None:
    """Put the weights in a folder into a model that is there.

    Args:
        model: Any module.
        folder: Where the weights are.
        put: Puts a state dict into the model and returns the missing and unexpected names.

    Raises:
        ArgumentError: the folder holds no weights that can be read without pickle, or those of another model.
    """
    try:
        _load(model, folder, put)
    except RuntimeError as error:
        said = " ".join(str(error).split())
        raise ArgumentError(
            "resume_from_checkpoint", str(folder), f"its weights are of another model: {said}"
        ) from error


def _load(model: torch.nn.Module, folder: Path, put: Put) -> None:
    if (folder / ADAPTER).is_file() and hasattr(model, "peft_config"):
        _load_adapter(model, folder, put)
        return
    state = _read(folder)
    if hasattr(model, "save_pretrained"):
        result = put(model, state)
        missing = _untied(model, result.missing_keys)
        if (missing or result.unexpected_keys) and hasattr(model, "from_pretrained"):
            # transformers may store weights under other names than the module has; only it knows them.
            cls: Any = type(model)
            reloaded = cls.from_pretrained(folder, dtype=next(model.parameters()).dtype)
            put(model, reloaded.state_dict())
            missing = []
        if missing:
            raise ArgumentError("resume_from_checkpoint", str(folder), f"its weights lack {missing[:5]}")
        return
    missing_keys, unexpected = _load_shared(model, state, put)
    if missing_keys or unexpected:
        raise ArgumentError(
            "resume_from_checkpoint",
            str(folder),
            f"it is of another model: missing {sorted(missing_keys)[:5]}, unexpected {sorted(unexpected)[:5]}",
        )


def _load_shared(model: torch.nn.Module, state: dict[str, torch.Tensor], put: Put) -> tuple[list[str], list[str]]:
    result = put(model, state)
    return _untied(model, result.missing_keys), result.unexpected_keys


def _untied(model: torch.nn.Module, missing: list[str]) -> list[str]:
    """Of the missing names, those whose tensor is not stored under another name."""
    if not missing:
        return []
    addresses = {name: address(tensor) for name, tensor in model.state_dict().items() if tensor.numel()}
    stored = {place for name, place in addresses.items() if name not in set(missing)}
    return [name for name in missing if name in addresses and addresses[name] not in stored]


def address(tensor: torch.Tensor) -> int:
    """Where a tensor, or this process's share of it, lies in memory; two names of one tensor have the same."""
    shard = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return shard.data_ptr() or id(tensor)


def _read(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    if (folder / WEIGHTS).is_file():
        weights: dict[str, torch.Tensor] = load_file(folder / WEIGHTS)
        return weights
    if (folder / INDEX).is_file():
        state: dict[str, torch.Tensor] = {}
        for part in sorted(folder.glob("model-*.safetensors")):
            state.update(load_file(part))
        return state
    raise ArgumentError(
        "resume_from_checkpoint",
        str(folder),
        f"it has no {WEIGHTS}; pickled weights are not loaded: convert them first",
    )


def _load_adapter(model: torch.nn.Module, folder: Path, put: Put) -> None:
    """Put an adapter's weights under the names that peft gives them in the model, which may be split over processes."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    named: dict[str, Any] = {}

    def take(state: dict[str, Any], **how: Any) -> Any:
        named.update(state)
        return SimpleNamespace(missing_keys=[], unexpected_keys=[])

    model.load_state_dict = take  # type: ignore[assignment]  # for peft alone, which calls it
    try:
        set_peft_model_state_dict(model, load_file(folder / ADAPTER), adapter_name=model.active_adapter)
    finally:
        del model.load_state_dict
    result = put(model, named)
    if result.unexpected_keys:
        raise ArgumentError(
            "resume_from_checkpoint", str(folder), f"its adapter is of another model: {result.unexpected_keys[:5]}"
        )
