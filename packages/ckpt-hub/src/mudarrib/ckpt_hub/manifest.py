"""`manifest.json`: what a checkpoint is made of. It is written last, so a folder that has one was written whole."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from .durable import FileRecord, hash_file
from .errors import CheckpointError

NAME = "manifest.json"
_FORMAT = "mudarrib-checkpoint"
_VERSION = 1
_FIX = "Use an older checkpoint."


@dataclass(frozen=True)
class Manifest:
    """The content of a checkpoint.

    Attributes:
        step: Optimizer steps done.
        metric: The score it was saved with.
        parts: Names of the parts whose state it holds.
        ranked: Those of them that each rank has its own state of.
        world_size: Number of ranks that wrote it.
        files: Name inside the folder (with "/") to size and SHA-256.
    """

    step: int
    metric: float | None
    parts: tuple[str, ...]
    ranked: tuple[str, ...]
    world_size: int
    files: Mapping[str, FileRecord]

    def to_bytes(self) -> bytes:
        """The file's content: JSON that carries its own SHA-256."""
        body: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, **asdict(self)}
        body["metric"] = None if self.metric is None else repr(float(self.metric))
        body["files"] = {name: record._asdict() for name, record in sorted(self.files.items())}
        body["digest"] = _digest(body)
        return json.dumps(body, indent=1).encode()

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of a checkpoint.

        Raises:
            CheckpointError: There is none, or it is damaged.
        """
        path = folder / NAME
        try:
            body = json.loads(path.read_bytes())
            if body["format"] != _FORMAT or body["version"] > _VERSION:
                raise CheckpointError(
                    str(path), f"{body['format']} version {body['version']}", "Update mudarrib-ckpt-hub to read it."
                )
            if body.pop("digest") != _digest(body):
                raise ValueError("its own digest does not match")
            return cls._from_json(body)
        except FileNotFoundError as error:
            raise CheckpointError(str(path), "missing: the folder is not a finished checkpoint", _FIX) from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise CheckpointError(str(path), f"damaged ({error})", _FIX) from error

    @classmethod
    def _from_json(cls, body: dict[str, Any]) -> Manifest:
        files = {_inside(name): FileRecord(int(r["size"]), str(r["sha256"])) for name, r in body["files"].items()}
        metric = None if body["metric"] is None else float(body["metric"])
        parts, ranked = (tuple(map(str, body[key])) for key in ("parts", "ranked"))
        return cls(int(body["step"]), metric, parts, ranked, int(body["world_size"]), files)

    def check_sizes(self, folder: Path) -> None:
        """See that every file is there in its full length; cheap.

        Raises:
            CheckpointError: One isn't.
        """
        for name, record in self.files.items():
            try:
                size = (folder / name).stat().st_size
            except OSError as error:
                raise CheckpointError(str(folder / name), f"unreadable ({error.strerror})", _FIX) from error
            if size != record.size:
                raise CheckpointError(str(folder / name), f"{size} bytes instead of {record.size}", _FIX)

    def check_hashes(self, folder: Path) -> None:
        """Read every file and compare its SHA-256.

        Raises:
            CheckpointError: One differs.
        """
        self.check_sizes(folder)

        def check(name: str) -> None:
            try:
                found = hash_file(folder / name)
            except OSError as error:
                raise CheckpointError(str(folder / name), f"unreadable ({error.strerror})", _FIX) from error
            if found != self.files[name]:
                raise CheckpointError(str(folder / name), "its SHA-256 is not the one that was written", _FIX)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(check, self.files))


def metric_value(metric: float | None) -> float | None:
    """The metric as a plain float, or None for "none" and NaN, which no order can hold."""
    if metric is None or math.isnan(metric):
        return None
    return float(metric)


def _digest(body: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in name or "\0" in name:
        raise ValueError(f"{name!r} points outside the folder")
    return name
