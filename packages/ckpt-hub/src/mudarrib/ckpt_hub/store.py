"""`CheckpointStore`: the checkpoints of one run, in one folder."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path

from . import commit
from .capture import Captured, Writer, capture
from .errors import CheckpointError
from .lock import FolderLock
from .manifest import Manifest, metric_value
from .ranks import from_first, rank, together, world_size
from .restore import read_states
from .retention import to_delete
from .stateful import Stateful, is_per_rank

_log = logging.getLogger(__name__)
_NAME = re.compile(r"checkpoint-(\d+)")


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is there.

    Attributes:
        path: Its folder.
        step: Optimizer steps done.
        metric: The score it was saved with, if any.
        parts: Names of the parts whose state it holds.
        missing: After `load(strict=False)`: the parts that it has no state for.
    """

    path: Path
    step: int
    metric: float | None = None
    parts: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class CheckpointStore:
    """Saves and loads the state of a training run in `root/checkpoint-<step>`.

    A checkpoint appears whole or not at all, whatever kills the process, and is on the disk when it appears.
    Under torch.distributed `save`, `load` and `wait` are called by every rank.

    Args:
        root: The run's folder, made at the first save.
        keep: How many checkpoints stay; None for all. The newest and the protected always stay.
        background: Write in a thread, so that the loop waits only for a copy of the state.

    Raises:
        CheckpointError: `keep` is below 1.
    """

    def __init__(self, root: str | PathLike[str], keep: int | None = None, background: bool = False) -> None:
        if keep is not None and keep < 1:
            raise CheckpointError("keep", keep, "Keep at least 1 checkpoint, or None for all.")
        self.root = Path(root)
        self.keep = keep
        self.background = background
        self._lock = FolderLock(self.root)

    def save(
        self,
        step: int,
        parts: Mapping[str, Stateful],
        *,
        metric: float | None = None,
        extra_files: Mapping[str, Writer] | None = None,
        protect: Collection[int | str | PathLike[str]] = (),
    ) -> Saved:
        """Save the state of `parts` as `checkpoint-<step>`, replacing one of that step.

        Args:
            step: Optimizer steps done, at least 0.
            parts: Name to module, optimizer, scheduler, `RngState()` or object of your own.
            metric: A score to remember with it.
            extra_files: Name to a writer that gets the folder and writes files of its own into it, such as
                `model.save_pretrained`; they become part of the checkpoint.
            protect: Steps or paths of checkpoints that must not be deleted now.

        Returns:
            The checkpoint.

        Raises:
            CheckpointError: It can't be written (full disk, no permission, another writer, state that is not
                plain data). Everything older is untouched.
        """
        if step < 0:
            raise CheckpointError("step", step, "Give the number of optimizer steps done.")
        name = f"checkpoint-{step}"
        try:
            folder = self._begin(name)
            with together():
                captured = capture(parts)
                captured.write_own(folder)
                if rank() == 0:
                    captured.writers.update(extra_files or {})
            ranked = tuple(part for part in captured.names if is_per_rank(parts[part]))
            saved = Saved(self.root / name, step, metric_value(metric), tuple(parts))
            with together():
                if rank() == 0:
                    self._write(folder, saved, captured, ranked)
                    self._retain(saved.path, protect)
        except OSError as error:
            self._discard(name)
            raise CheckpointError(
                "root", f"{self.root}: {error.strerror or error}", "Free some space or choose a writable folder."
            ) from error
        except BaseException:
            self._discard(name)
            raise
        return saved

    def _begin(self, name: str) -> Path:
        with together():
            if rank() == 0:
                self.root.mkdir(parents=True, exist_ok=True)
                self._lock.acquire()
                commit.begin(self.root, name)
        return commit.temporary(self.root, name)

    def _write(self, folder: Path, saved: Saved, captured: Captured, ranked: tuple[str, ...]) -> None:
        for write in captured.writers.values():
            write(folder)
        records = commit.record_all(folder, captured.write_shared(folder))
        manifest = Manifest(saved.step, saved.metric, saved.parts, ranked, world_size(), records)
        commit.commit(folder, saved.path, manifest)

    def _retain(self, newest: Path, protect: Collection[int | str | PathLike[str]]) -> None:
        safe = [item if isinstance(item, int) else self._locate(item) for item in protect]
        for path in to_delete(self.checkpoints(), self.keep, newest=newest, protect=safe):
            commit.remove(path)

    def _discard(self, name: str) -> None:
        if rank() == 0:
            shutil.rmtree(commit.temporary(self.root, name), ignore_errors=True)

    def load(
        self,
        parts: Mapping[str, Stateful],
        checkpoint: str | PathLike[str] | None = None,
        *,
        strict: bool = True,
    ) -> Saved | None:
        """Put the state of a checkpoint into `parts`.

        Args:
            parts: Name to object, as at saving; parts of the checkpoint that are not asked for are left out.
            checkpoint: Its folder, also one that was copied or renamed; a relative path may start in `root`.
                None takes the newest valid one: damaged ones are passed over with a warning.
            strict: False leaves parts alone that the checkpoint has no state for, and names them in `missing`.

        Returns:
            The checkpoint, or None when `checkpoint` is None and there is nothing to load.

        Raises:
            CheckpointError: The given checkpoint is damaged or misses a part; or there are checkpoints, but
                none is valid.
        """
        if checkpoint is not None:
            return self._load(parts, self._locate(checkpoint), strict)
        newest: Saved | None = None
        with together():
            newest = self._newest_intact() if rank() == 0 else None
        newest = from_first(newest)
        return None if newest is None else self._load(parts, newest.path, strict, verified=True)

    def _newest_intact(self) -> Saved | None:
        candidates = self._candidates()
        for path in reversed(candidates):
            try:
                self.verify(path)
                return _saved(path)
            except CheckpointError as error:
                _log.warning("Passing over %s: %s", path.name, error)
        if candidates:
            raise CheckpointError("root", f"no checkpoint in {self.root} is whole", "Start anew in another folder.")
        return None

    def _load(self, parts: Mapping[str, Stateful], path: Path, strict: bool, verified: bool = False) -> Saved:
        with together():
            manifest = Manifest.read(path)
            if rank() == 0 and not verified:
                manifest.check_hashes(path)
            missing = tuple(name for name in parts if name not in manifest.parts)
            if missing and strict:
                raise CheckpointError(
                    "parts",
                    f"{path} has no state for {', '.join(missing)}, only for {', '.join(manifest.parts)}",
                    "Leave these out, or pass strict=False.",
                )
            states = read_states(path, manifest, parts)
        for name, state in states.items():
            parts[name].load_state_dict(state)
        return replace(_saved(path), missing=missing)

    def checkpoints(self) -> list[Saved]:
        """The valid checkpoints, oldest first. Valid here: all files there in full length, which is quick."""
        found = []
        for path in self._candidates():
            try:
                found.append(_saved(path))
            except CheckpointError as error:
                _log.debug("Not valid: %s", error)
        return sorted(found, key=lambda saved: saved.step)

    def newest(self) -> Saved | None:
        """The valid checkpoint of the highest step, or None."""
        return max(self.checkpoints(), key=lambda saved: saved.step, default=None)

    def verify(self, checkpoint: str | PathLike[str]) -> None:
        """Read every file of a checkpoint and compare its SHA-256.

        Raises:
            CheckpointError: Something is damaged or missing (the message names the file).
        """
        path = self._locate(checkpoint)
        Manifest.read(path).check_hashes(path)

    def wait(self) -> None:
        """Wait until all is written, raise what went wrong, and let other processes write here."""
        self._lock.release()

    def _candidates(self) -> list[Path]:
        """Folders that may be checkpoints, oldest first by name."""
        if not self.root.is_dir():
            return []
        named = [path for path in self.root.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
        named += commit.stepped_aside(self.root)
        return sorted(named, key=lambda path: int(path.name.rpartition("-")[2]))

    def _locate(self, checkpoint: str | PathLike[str]) -> Path:
        path = Path(fspath(checkpoint))
        inside = self.root / path
        return inside if not path.exists() and inside.exists() else path


def _saved(path: Path) -> Saved:
    manifest = Manifest.read(path)
    manifest.check_sizes(path)
    return Saved(path, manifest.step, manifest.metric, manifest.parts)
