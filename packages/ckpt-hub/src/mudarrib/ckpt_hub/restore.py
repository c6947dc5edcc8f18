"""From the files of a checkpoint to the states of the parts asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from .capture import STATE, VERSION, own_file, tensor_file
from .decode import decode
from .encode import Json
from .errors import CheckpointError
from .hf_layout import TRAINER_STATE, PeerCheckpoint, looks_like_peers
from .manifest import NAME, Manifest
from .model_files import has_weights, read_weights
from .ranks import rank
from .stateful import Shardable, Stateful
from .tensors import read_tensors


class Checkpoint(Protocol):
    """A folder that states can be read from."""

    @property
    def step(self) -> int: ...
    @property
    def metric(self) -> float | None: ...
    @property
    def parts(self) -> tuple[str, ...]: ...
    def check_sizes(self) -> None:
        """Raise a CheckpointError unless all files are there in full length; quick."""

    def check_hashes(self) -> None:
        """Raise a CheckpointError unless every file holds what was written, as far as that can be known."""

    def read_states(self, parts: Mapping[str, Stateful]) -> dict[str, Any]:
        """The states of those `parts` that the checkpoint has."""
        ...

    def model_files(self) -> list[str]:
        """The files that are the model's: weights, configuration, tokenizer; no states of the training."""
        ...


def open_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a folder, ours or the peers'.

    Raises:
        CheckpointError: There is none, or what describes it is damaged.
    """
    if not (path / NAME).exists() and looks_like_peers(path):
        return PeerCheckpoint(path)
    return OwnCheckpoint(path)


class OwnCheckpoint:
    """A checkpoint that a `CheckpointStore` wrote."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest: Manifest = Manifest.read(path)
        self.step: int = self.manifest.step
        self.metric: float | None = self.manifest.metric
        self.parts: tuple[str, ...] = self.manifest.parts
        self._trees: Any = None
        # Weights that the model wrote itself can be read into a module, too.
        self._has_weights = "model" not in self.parts and has_weights(self.manifest.files)

    def check_sizes(self) -> None:
        """See `Manifest.check_sizes`."""
        self.manifest.check_sizes(self.path)

    def check_hashes(self) -> None:
        """See `Manifest.check_hashes`."""
        self.manifest.check_hashes(self.path)

    def read_states(self, parts: Mapping[str, Stateful]) -> dict[str, Any]:
        """The states of those `parts` that the checkpoint has, before anything is put back.

        Raises:
            CheckpointError: A file is damaged.
        """
        states: dict[str, Any] = {}
        shared = [name for name in parts if name in self.parts and name not in self.manifest.ranked]
        sharded = {name: part for name, part in parts.items() if name in shared and isinstance(part, Shardable)}
        states |= self.read_shared([name for name in shared if name not in sharded])
        for name, part in sharded.items():
            states[name] = part.load_shards(self.path / name, self._tree(name))
        for name in (name for name in parts if name in self.manifest.ranked):
            saved = self.manifest.world_size
            state = self.read_rank(name, rank() % saved)
            fork = getattr(parts[name], "fork_state_dict", None)
            states[name] = fork(state, rank()) if rank() >= saved and fork else state
        model = parts.get("model")
        if self._has_weights and isinstance(model, nn.Module):
            states["model"] = read_weights(self.path, model)
        return states

    def read_shared(self, names: Iterable[str]) -> dict[str, Any]:
        """The states of parts that all ranks share."""
        files = {name: tensor_file(name) for name in names}
        there = {name: file for name, file in files.items() if file in self.manifest.files}
        tensors = {name: read_tensors(self.path / file) for name, file in there.items()}
        return {name: decode(self._tree(name), tensors.get(name, {})) for name in files}

    def _tree(self, name: str) -> Any:
        if self._trees is None:
            self._trees = _read_json(self.path / STATE, "parts")
        if not isinstance(self._trees, dict) or name not in self._trees:
            raise CheckpointError(str(self.path / STATE), f"damaged (no part {name!r})", "Use an older checkpoint.")
        return self._trees[name]

    def read_rank(self, name: str, of_rank: int) -> Any:
        """One rank's state of a part that each rank has its own of."""
        return decode(_read_json(self.path / own_file(name, of_rank, self.manifest.world_size), "state"), {})

    def model_files(self) -> list[str]:
        """All files but the states of parts; the weights of a part "model" are a model's file, too."""
        ranks = self.manifest.world_size
        own = {own_file(name, i, ranks) for name in self.manifest.ranked for i in range(ranks)}
        states = {STATE, TRAINER_STATE, *own, *map(tensor_file, self.parts)} - {tensor_file("model")}
        return [name for name in self.manifest.files if name not in states]


def _read_json(path: Path, key: str) -> Any:
    try:
        body: dict[str, Json] = json.loads(path.read_bytes())
        if body["version"] != VERSION:
            raise CheckpointError(str(path), f"version {body['version']}", "Update mudarrib-ckpt-hub to read it.")
        return body[key]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(str(path), f"damaged ({error})", "Use an older checkpoint.") from error
