"""`CheckpointStore`: the checkpoints of one run, in one folder."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

from . import commit
from .capture import Captured, CapturingWriter, Writer, capture, run_writers
from .errors import CheckpointError
from .lock import FolderLock
from .manifest import Manifest, metric_value
from .ranks import from_first, rank, together, world_size
from .restore import open_checkpoint
from .retention import to_delete
from .snapshot import Snapshot
from .stateful import Stateful, is_per_rank
from .writer import BackgroundWriter

_log = logging.getLogger(__name__)
_NAME = re.compile(r"checkpoint-(\d+)")

ExtraFile: TypeAlias = Writer | CapturingWriter


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
    Checkpoints of transformers' Trainer in the same folder are listed and loaded, too (see `hf_layout`).
    Under torch.distributed `save`, `load` and `wait` are called by every rank.

    Args:
        root: The run's folder, made at the first save.
        keep: How many checkpoints stay; None for all. The newest and the protected always stay.
        background: Write in a thread, so that the loop waits only for a copy of the state. One write at a time;
            what goes wrong in it is raised by the next `save` or `wait`.
        defer_copy: In background mode, make the copy of weights and optimizer state while the next forward and
            backward run; the next optimizer step waits for its end.

    Raises:
        CheckpointError: `keep` is below 1.
    """

    def __init__(
        self,
        root: str | PathLike[str],
        keep: int | None = None,
        background: bool = False,
        defer_copy: bool = False,
    ) -> None:
        if keep is not None and keep < 1:
            raise CheckpointError("keep", keep, "Keep at least 1 checkpoint, or None for all.")
        self.root: Path = Path(root)
        self.keep = keep
        self.background = background
        self._lock = FolderLock(self.root)
        self._told: set[Path] = set()
        self._writer = BackgroundWriter()
        self._snapshot = Snapshot(defer_copy)

    def save(
        self,
        step: int,
        parts: Mapping[str, Stateful],
        *,
        metric: float | None = None,
        extra_files: Mapping[str, ExtraFile] | None = None,
        protect: Collection[int | str | PathLike[str]] = (),
        then: Callable[[Saved], object] | None = None,
    ) -> Saved:
        """Save the state of `parts` as `checkpoint-<step>`, replacing one of that step.

        In background mode this returns when the state is copied, after the write before it has ended; with
        `defer_copy` even before that (see `finish_snapshot`).

        Args:
            step: Optimizer steps done, at least 0.
            parts: Name to module, optimizer, scheduler, `RngState()` or object of your own.
            metric: A score to remember with it.
            extra_files: Name to a writer that gets the folder and writes files of its own into it, such as
                `model.save_pretrained`; they become part of the checkpoint. It runs before `save` returns. One
                with a method `capture(copy)` is asked for a writer of the copied state instead, and that runs
                in the background (`ModelFiles` is one).
            protect: Steps or paths of checkpoints that must not be deleted now.
            then: Called on rank 0 with the checkpoint as soon as it is there, on the thread that wrote it.

        Returns:
            The checkpoint; in background mode it is there only after `wait`, the next `save`, or `then`.

        Raises:
            CheckpointError: It can't be written (full disk, no permission, another writer, state that is not
                plain data), or the one before could not be. Everything older is untouched.
        """
        if step < 0:
            raise CheckpointError("step", step, "Give the number of optimizer steps done.")
        with together():
            self._writer.wait()
        saved = Saved(self.root / f"checkpoint-{step}", step, metric_value(metric), tuple(parts))
        with self._cleaning(saved.path.name):
            folder = self._begin(saved.path.name)
            with together():
                captured = self._capture(parts, extra_files or {}, folder)
            ranked = tuple(name for name, part in parts.items() if is_per_rank(part))
            # Known now: the process group may be gone when the writer's thread comes to its end.
            manifest = Manifest(step, saved.metric, saved.parts, ranked, world_size(), {})

            def finish() -> None:
                with self._cleaning(saved.path.name):
                    self._snapshot.finish()
                    records = commit.record_all(folder, captured.write_shared(folder))
                    commit.commit(folder, saved.path, replace(manifest, files=records))
                    self._retain(saved.path, protect)
                if then is not None:
                    then(saved)

            if self.background and rank() == 0:
                self._writer.start(finish)
            elif not self.background:
                with together():
                    if rank() == 0:
                        finish()
        return saved

    def _begin(self, name: str) -> Path:
        with together():
            if rank() == 0:
                self.root.mkdir(parents=True, exist_ok=True)
                self._lock.acquire()
                commit.begin(self.root, name)
        return commit.temporary(self.root, name)

    def _capture(self, parts: Mapping[str, Stateful], extra_files: Mapping[str, ExtraFile], folder: Path) -> Captured:
        if self.background and rank() == 0:
            self._snapshot.begin(parts)
            copy = self._snapshot.copy
        else:
            copy = _as_it_is
        captured = capture(parts, folder, copy)
        captured.write_own(folder)
        if rank() == 0:
            run_writers(captured, extra_files, folder, copy)
        return captured

    @contextmanager
    def _cleaning(self, name: str) -> Iterator[None]:
        """Leave nothing half-written behind an error, and say what the system's own errors mean."""
        try:
            yield
        except BaseException as error:
            self._snapshot.abandon()
            if rank() == 0:
                shutil.rmtree(commit.temporary(self.root, name), ignore_errors=True)
            if isinstance(error, OSError):
                raise CheckpointError(
                    "root", f"{self.root}: {error.strerror or error}", "Free some space or choose a writable folder."
                ) from error
            raise

    def _retain(self, newest: Path, protect: Collection[int | str | PathLike[str]]) -> None:
        there = self.checkpoints()
        for path in to_delete(there, self.keep, newest=newest, protect=self._protected(there, protect)):
            commit.remove(path)

    def _protected(self, there: Collection[Saved], protect: Collection[int | str | PathLike[str]]) -> list[int | Path]:
        """The same, with each path as `there` spells it: a relative one may mean an absolute one."""
        steps: list[int | Path] = [item for item in protect if isinstance(item, int)]
        folders = {self._locate(item).resolve() for item in protect if not isinstance(item, int)}
        return steps + [saved.path for saved in there if saved.path.resolve() in folders]

    def prune(
        self, keep: int, *, protect: Collection[int | str | PathLike[str]] = (), dry_run: bool = False
    ) -> list[Path]:
        """Delete all valid checkpoints but the newest `keep` and the protected.

        Args:
            keep: How many stay, at least 1.
            protect: Steps or paths of checkpoints that stay in any case.
            dry_run: Delete nothing.

        Returns:
            The folders deleted, or that would be.

        Raises:
            CheckpointError: `keep` is below 1, or another process is writing here.
        """
        if keep < 1:
            raise CheckpointError("keep", keep, "Keep at least 1 checkpoint.")
        there = self.checkpoints()
        gone = to_delete(there, keep, protect=self._protected(there, protect))
        if gone and not dry_run:
            self._lock.acquire()
            for path in gone:
                commit.remove(path)
        return gone

    def finish_snapshot(self) -> None:
        """Return when the state may be changed again, after a save with `defer_copy`.

        Each optimizer among the parts calls this by itself before its step. Call it before anything else that
        writes to weights or optimizer state (loading other weights, averaging in place).
        """
        self._snapshot.wait()

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
        with together():
            self._writer.wait()
        if checkpoint is not None:
            return self._load(parts, self._locate(checkpoint), strict)
        newest: Saved | None = None
        with together():
            newest = self._newest_intact() if rank() == 0 else None
        newest = from_first(newest)
        return None if newest is None else self._load(parts, newest.path, strict, verified=True)

    def _newest_intact(self) -> Saved | None:
        newest = self.newest(intact=True)
        if newest is None and self._candidates():
            raise CheckpointError("root", f"no checkpoint in {self.root} is whole", "Start anew in another folder.")
        return newest

    def _load(self, parts: Mapping[str, Stateful], path: Path, strict: bool, verified: bool = False) -> Saved:
        with together():
            checkpoint = open_checkpoint(path)
            if rank() == 0 and not verified:
                checkpoint.check_hashes()
            states = checkpoint.read_states(parts)
            missing = tuple(name for name in parts if name not in states)
            if missing and strict:
                raise CheckpointError(
                    "parts",
                    f"{path} has no state for {', '.join(missing)}, only for {', '.join(checkpoint.parts)}",
                    "Leave these out, or pass strict=False.",
                )
        for name, state in states.items():
            _put_back(parts[name], state, f"part {name!r} of {path}")
        return Saved(path, checkpoint.step, checkpoint.metric, checkpoint.parts, missing)

    def checkpoints(self) -> list[Saved]:
        """The valid checkpoints, oldest first. Valid here: all files there in full length, which is quick."""
        found = []
        for path in self._candidates():
            try:
                found.append(_saved(path))
            except CheckpointError as error:
                self._pass_over(path, error)
        return sorted(found, key=lambda saved: saved.step)

    def newest(self, *, intact: bool = False) -> Saved | None:
        """The valid checkpoint of the highest step, or None.

        Args:
            intact: Also compare every file's SHA-256, and pass over what is damaged; reads everything.
        """
        for saved in reversed(self.checkpoints()):
            try:
                if intact:
                    self.verify(saved.path)
                return saved
            except CheckpointError as error:
                self._pass_over(saved.path, error)
        return None

    def _pass_over(self, path: Path, error: CheckpointError) -> None:
        """Tell of a damaged checkpoint; once, since the folder is looked through at every save."""
        level = logging.DEBUG if path in self._told else logging.WARNING
        self._told.add(path)
        _log.log(level, "Passing over %s: %s", path.name, error)

    def verify(self, checkpoint: str | PathLike[str]) -> None:
        """Read every file of a checkpoint and compare its SHA-256.

        Raises:
            CheckpointError: Something is damaged or missing (the message names the file).
        """
        open_checkpoint(self._locate(checkpoint)).check_hashes()

    def wait(self, *, alone: bool = False) -> None:
        """Return when all is written, and let other processes write here.

        Args:
            alone: Do not ask the other ranks how they fared: after an error, when they may not answer.

        Raises:
            CheckpointError: The last write in the background failed.
        """
        try:
            with nullcontext() if alone else together():
                self._writer.wait()
        finally:
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


def _as_it_is(tree: object) -> object:
    return tree


def _put_back(part: Stateful, state: dict[str, Any], what: str) -> None:
    try:
        part.load_state_dict(state)
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(what, f"does not fit ({error})", "Build the object as it was at saving.") from error


def _saved(path: Path) -> Saved:
    checkpoint = open_checkpoint(path)
    checkpoint.check_sizes()
    return Saved(path, checkpoint.step, checkpoint.metric, checkpoint.parts)
