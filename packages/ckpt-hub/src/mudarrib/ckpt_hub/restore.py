"""From the files of a checkpoint to the states of the parts asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .capture import STATE, VERSION, own_file, tensor_file
from .decode import decode
from .encode import Json
from .errors import CheckpointError
from .manifest import Manifest
from .ranks import rank
from .stateful import Stateful
from .tensors import read_tensors


def read_states(folder: Path, manifest: Manifest, parts: Mapping[str, Stateful]) -> dict[str, Any]:
    """The states of those `parts` that the checkpoint has, before anything is put back.

    Raises:
        CheckpointError: A file is damaged.
    """
    shared = [name for name in parts if name in manifest.parts and name not in manifest.ranked]
    own = [name for name in parts if name in manifest.ranked]
    states = dict(_read_shared(folder, manifest, shared)) if shared else {}
    return states | {name: _read_own(folder, manifest, name, parts[name]) for name in own}


def _read_shared(folder: Path, manifest: Manifest, names: Iterable[str]) -> Iterable[tuple[str, Any]]:
    trees = _read_json(folder / STATE, "parts")
    for name in names:
        file = tensor_file(name)
        tensors = read_tensors(folder / file) if file in manifest.files else {}
        yield name, decode(trees[name], tensors)


def _read_own(folder: Path, manifest: Manifest, name: str, part: Stateful) -> Any:
    saved = manifest.world_size
    state = decode(_read_json(folder / own_file(name, rank() % saved, saved), "state"), {})
    fork = getattr(part, "fork_state_dict", None)
    return fork(state, rank()) if rank() >= saved and fork else state


def _read_json(path: Path, key: str) -> Any:
    try:
        body: dict[str, Json] = json.loads(path.read_bytes())
        if body["version"] != VERSION:
            raise CheckpointError(str(path), f"version {body['version']}", "Update mudarrib-ckpt-hub to read it.")
        return body[key]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(str(path), f"damaged ({error})", "Use an older checkpoint.") from error
