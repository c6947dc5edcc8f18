"""Checkpoints of transformers' Trainer: read as they lie, and the files that it resumes from.

Its states are pickles. They are read by torch's restricted loader alone (`weights_only`), and only on torch
versions in which no way around it is known; a file that asks for anything else is refused unread.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .errors import CheckpointError
from .model_files import has_weights, read_weights
from .ranks import rank
from .stateful import Stateful
from .tensors import check_length

TRAINER_STATE = "trainer_state.json"
OPTIMIZER, SCHEDULER, SCALER = "optimizer.pt", "scheduler.pt", "scaler.pt"
_PICKLES = {"optimizer": OPTIMIZER, "scheduler": SCHEDULER, "scaler": SCALER}
_SAFE_TORCH = (2, 10)
_FIX = "Use an older checkpoint."

# How NumPy's own pickles make an array, under its names in NumPy 2 and 1; they build arrays of numbers, and no more.
_reconstruct = np.empty(0).__reduce__()[0]
_HARMLESS: list[Any] = [
    *((_reconstruct, f"numpy.{core}.multiarray._reconstruct") for core in ("_core", "core")),
    np.ndarray,
    np.dtype,
    type(np.dtype(np.uint32)),
]


def looks_like_peers(path: Path) -> bool:
    """Whether a folder is a checkpoint of transformers' Trainer, finished or not, and not a broken one of ours."""
    return (path / TRAINER_STATE).is_file() and not (path / "state.json").exists()


class PeerCheckpoint:
    """A checkpoint that transformers' Trainer wrote.

    Its parts are "progress" (the content of `trainer_state.json`), and "optimizer", "scheduler", "scaler", "rng"
    and "model" where their files are there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state = _read_state(path / TRAINER_STATE)
        self.step: int = int(self._state["global_step"])
        self.metric: float | None = None
        files = {file.name for file in path.iterdir()}
        self.parts: tuple[str, ...] = (
            "progress",
            *(part for part, file in _PICKLES.items() if file in files),
            *(["rng"] if any(name.startswith("rng_state") for name in files) else []),
            *(["model"] if has_weights(files) else []),
        )

    def check_sizes(self) -> None:
        """See that no file ends early. The Trainer writes `trainer_state.json` last, so it is there at all only
        when the others had been written."""
        for file in self.path.iterdir():
            if file.suffix in (".pt", ".pth") and not zipfile.is_zipfile(file):
                raise CheckpointError(str(file), "not a whole torch file", _FIX)
            if file.suffix == ".safetensors":
                check_length(file)

    def check_hashes(self) -> None:
        """Compare the checksums inside torch's files; weights in safetensors have none."""
        self.check_sizes()
        for file in self.path.iterdir():
            if file.suffix in (".pt", ".pth"):
                _check_zip(file)

    def read_states(self, parts: Mapping[str, Stateful]) -> dict[str, Any]:
        """The states of those `parts` that the checkpoint has.

        Raises:
            CheckpointError: A file is damaged, or is a pickle that wants more than data; or torch is too old to
                read pickles safely.
        """
        readers: dict[str, Callable[[], Any]] = {
            "progress": lambda: self._state,
            "rng": self._read_rng,
            **{part: lambda file=file: _load(self.path / file) for part, file in _PICKLES.items()},  # type: ignore[misc]  # one file a lambda
        }
        states = {name: readers[name]() for name in parts if name in self.parts and name in readers}
        model = parts.get("model")
        if "model" in self.parts and isinstance(model, nn.Module):
            states["model"] = read_weights(self.path, model)
        return states

    def model_files(self) -> list[str]:
        """The files that aren't the Trainer's states."""
        states = {*_PICKLES.values(), TRAINER_STATE, "training_args.bin"}
        names = (path.name for path in self.path.iterdir() if path.is_file())
        return sorted(name for name in names if name not in states and not name.startswith("rng_state"))

    def _read_rng(self) -> dict[str, Any]:
        own = self.path / f"rng_state_{rank()}.pth"
        files = [own] if own.exists() else sorted(self.path.glob("rng_state*.pth"))
        state = _load(files[0])
        try:
            devices = {name: _as_list(state[name]) for name in ("cuda", "xpu", "mps") if name in state}
            return {"python": state["python"], "numpy": state["numpy"], "torch": state["cpu"], "devices": devices}
        except (KeyError, TypeError) as error:
            raise CheckpointError(str(files[0]), f"no random state ({error})", _FIX) from error


def write_peer_files(folder: Path, states: Mapping[str, Any], step: int, rng_by_rank: list[dict[str, Any]]) -> None:
    """Write what transformers' Trainer resumes from, beside the model's own files.

    Args:
        folder: Where to.
        states: States of "optimizer", "scheduler", "scaler" and "progress", as far as there are.
        step: Optimizer steps done.
        rng_by_rank: States of `RngState`, one a rank.
    """
    for part, file in _PICKLES.items():
        if part in states:
            torch.save(states[part], folder / file)
    for i, state in enumerate(rng_by_rank):
        name = "rng_state.pth" if len(rng_by_rank) == 1 else f"rng_state_{i}.pth"
        devices = {name: states[0] if len(rng_by_rank) > 1 else states for name, states in state["devices"].items()}
        torch.save(
            {"python": state["python"], "numpy": state["numpy"], "cpu": state["torch"], **devices}, folder / name
        )
    if not (folder / TRAINER_STATE).exists():
        progress = states.get("progress")
        known = progress if isinstance(progress, dict) and "global_step" in progress else {}
        state = {"log_history": [], "stateful_callbacks": {}, "global_step": step} | known
        (folder / TRAINER_STATE).write_text(json.dumps(state))


def _check_zip(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise CheckpointError(str(path), f"damaged ({error})", _FIX) from error
    if damaged is not None:
        raise CheckpointError(str(path), f"damaged (the checksum of {damaged} is wrong)", _FIX)


def _as_list(states: object) -> list[Any]:
    return list(states) if isinstance(states, list | tuple) else [states]


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads(path.read_bytes())
        if not isinstance(state["global_step"], int):
            raise ValueError("global_step is no number")
        return state
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(str(path), f"damaged ({error})", _FIX) from error


def _load(path: Path) -> Any:
    if tuple(map(int, torch.__version__.split(".")[:2])) < _SAFE_TORCH:
        raise CheckpointError(
            str(path),
            f"a pickle, which torch {torch.__version__} can't be trusted to read without running it",
            "Install torch 2.10 or newer, or convert the checkpoint where that is installed.",
        )
    try:
        with torch.serialization.safe_globals(_HARMLESS):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).partition("\n")[0][:200]
        raise CheckpointError(
            str(path), f"damaged, or a pickle that wants to run code ({reason})", "Do not load it by other means."
        ) from error
