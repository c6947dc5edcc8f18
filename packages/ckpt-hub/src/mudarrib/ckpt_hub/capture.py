"""From live parts to what has to be written: done on the loop's thread, quickly."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from .durable import FileRecord, write_bytes
from .encode import Json, encode
from .errors import CheckpointError
from .manifest import NAME as MANIFEST
from .ranks import rank, world_size
from .snapshot import Copy
from .stateful import Shardable, Stateful, is_per_rank
from .tensors import write_tensors

STATE = "state.json"
VERSION = 1
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")

Writer = Callable[[Path], object]


@runtime_checkable
class CapturingWriter(Protocol):
    """A writer of extra files that takes what it needs on the loop's thread and writes it later."""

    def capture(self, copy: Copy, /) -> Writer:
        """Take the state, each tensor tree through `copy`, and return what writes it."""
        ...


@dataclass
class Captured:
    """The content of a checkpoint, taken out of the parts.

    Attributes:
        trees: Part to its structure, for `state.json`.
        tensors: Part to its tensors by name; live, or copies in the snapshot's buffer.
        own: Part to the structure that this rank alone keeps.
        writers: What is written from copies, later: each gets the folder.
    """

    trees: dict[str, Json] = field(default_factory=dict)
    tensors: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    own: dict[str, Json] = field(default_factory=dict)
    writers: list[Writer] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        """All parts, in the order in which they were given."""
        return (*self.trees, *self.own)

    def write_own(self, folder: Path) -> None:
        """Write this rank's own states."""
        for name, tree in self.own.items():
            write_bytes(folder / own_file(name, rank(), world_size()), _dump({"version": VERSION, "state": tree}))

    def write_shared(self, folder: Path) -> dict[str, FileRecord]:
        """Write what all ranks share, and tell each file's size and SHA-256."""
        for write in self.writers:
            write(folder)
        tensors = {tensor_file(name): tensors for name, tensors in self.tensors.items()}
        for file in (STATE, MANIFEST, *tensors):
            if (folder / file).exists():
                raise CheckpointError("extra_files", f"{file} is a file of the store's own", "Write to another name.")
        records = {STATE: write_bytes(folder / STATE, _dump({"version": VERSION, "parts": self.trees}))}
        return records | {file: write_tensors(folder / file, named) for file, named in tensors.items()}


def capture(parts: Mapping[str, Stateful], folder: Path, copy: Copy) -> Captured:
    """Take the state out of every part.

    Every rank asks every part (a sharded part's `state_dict` needs all ranks); only rank 0 keeps what is shared.

    Args:
        parts: Name to object.
        folder: Where the checkpoint is being written; shards are written at once, below it.
        copy: What the tensors go through: a snapshot's copy, or nothing.

    Raises:
        CheckpointError: A name can't be a file's, a part has no state_dict, or a state is not plain data.
    """
    captured = Captured()
    for name, part in parts.items():
        _check(name, part)
        try:
            _capture_part(captured, name, part, folder, copy)
        except CheckpointError as error:
            raise CheckpointError(f"part {name!r}, {error.argument}", error.value, error.fix) from error
    return captured


def _capture_part(captured: Captured, name: str, part: Stateful, folder: Path, copy: Copy) -> None:
    if isinstance(part, Shardable):
        captured.trees[name] = part.save_shards(folder / name)
        return
    state = part.state_dict()
    if is_per_rank(part):
        captured.own[name] = encode(state, inline=True).tree
    elif rank() == 0:
        captured.trees[name], tensors = encode(state)
        if tensors or isinstance(part, nn.Module):
            captured.tensors[name] = copy(tensors)


def run_writers(
    captured: Captured, extra_files: Mapping[str, Writer | CapturingWriter], folder: Path, copy: Copy
) -> None:
    """Write the extra files now, or, for those that can, take what they need and let them write later."""
    for name, writer in extra_files.items():
        if isinstance(writer, CapturingWriter):
            captured.writers.append(writer.capture(copy))
        elif callable(writer):
            writer(folder)
        else:
            raise CheckpointError(
                "extra_files", f"{name!r} is a {type(writer).__name__}", "Give a callable that takes the folder."
            )


def _check(name: str, part: object) -> None:
    if not _NAME.fullmatch(name) or f"{name}.json" in (STATE, MANIFEST):
        raise CheckpointError(
            "parts",
            f"a part named {name!r}",
            "Use letters, digits, '-' and '_', and not a name of the store's own files.",
        )
    if not isinstance(part, Stateful):
        raise CheckpointError(
            "parts", f"{name!r} is a {type(part).__name__}", "Give an object with state_dict() and load_state_dict()."
        )


def tensor_file(part: str) -> str:
    """The file that holds the tensors of a part."""
    return f"{part}.safetensors"


def own_file(part: str, of_rank: int, ranks: int) -> str:
    """The file that holds a rank's own state of a part."""
    return f"{part}.json" if ranks == 1 else f"{part}-{of_rank}.json"


def _dump(tree: Json) -> bytes:
    return json.dumps(tree, separators=(",", ":"), allow_nan=False).encode()
