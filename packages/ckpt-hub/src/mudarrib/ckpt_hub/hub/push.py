"""`HubPusher`: checkpoints go to the hub beside the training, and never stand in its way."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import threading
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from huggingface_hub import HfApi, get_token

from mudarrib.ckpt_hub.errors import CheckpointError
from mudarrib.ckpt_hub.ranks import rank
from mudarrib.ckpt_hub.restore import open_checkpoint

from .secrets import redact
from .strategies import Event, Target, check_strategy, pushes_at, targets
from .transfer import Repository, Upload

_log = logging.getLogger(__name__)
_STAGED = ".push-"


class HubPusher:
    """Sends checkpoints and the final model to a repository of the hub.

    Pushes run in a thread, one at a time. What waits is replaced by what is newer for the same place, so that a
    slow hub gets the newest state and no queue. Each push is one commit: a clone never sees half of one. Whatever
    the hub does, nothing is raised into the training; `wait` tells whether all arrived, and `error` why not.

    The files are linked aside at `push`, so that the checkpoint may be deleted while it is sent.

    Args:
        repo_id: "user/name", or "name" in the token's own namespace; made at the first push if need be.
        token: A token that may write; None for the one of `hf auth login` or HF_TOKEN.
        private: Whether a new repository is private; None for the account's default. True refuses to push to
            one that is public.
        revision: The branch; made if need be. None for the main one.
        strategy: "end", "every_save", "checkpoint" or "all_checkpoints"; see `strategies.targets`.
        root: The folder in which files wait; None for the parent of what is pushed. Linking is at no cost on the
            same file system.
        endpoint: The hub's address; None for the public one, or HF_ENDPOINT.
        attempts: How often a push is tried before it waits for the next one.
        first_wait_s: Seconds before the second try; doubled each time, up to a minute.

    Raises:
        CheckpointError: `strategy` is none of the four.
    """

    def __init__(
        self,
        repo_id: str,
        *,
        token: str | None = None,
        private: bool | None = None,
        revision: str | None = None,
        strategy: str = "every_save",
        root: str | PathLike[str] | None = None,
        endpoint: str | None = None,
        attempts: int = 8,
        first_wait_s: float = 1.0,
    ) -> None:
        self.strategy = check_strategy(strategy)
        self.error: str | None = None
        self.commit: str | None = None
        api = HfApi(endpoint=endpoint, token=token)
        self._repository = Repository(api, repo_id, private, revision, attempts, first_wait_s)
        self._hidden = token or get_token()
        self._root = Path(root) if root is not None else None
        self._pending: dict[str, Upload] = {}
        self._message = self._message_sent = ""
        self._changed = threading.Condition()
        self._resting = False
        self._worker: threading.Thread | None = None
        self._numbers = itertools.count()

    def __repr__(self) -> str:
        return f"HubPusher({self.repo_id!r}, strategy={self.strategy!r})"

    @property
    def repo_id(self) -> str:
        """The repository, in full after the first push."""
        return self._repository.repo_id

    def pushes_at(self, event: Event) -> bool:
        """Whether the strategy sends anything at "save" or "end"."""
        return pushes_at(self.strategy, event)

    def push(
        self,
        folder: str | PathLike[str],
        reason: Event = "save",
        *,
        step: int | None = None,
        message: str | None = None,
        blocking: bool = False,
    ) -> bool:
        """Send a folder, in the background.

        Args:
            folder: For "save" a finished checkpoint, for "end" the run's folder with the final model.
            reason: "save" or "end".
            step: Optimizer steps done; None takes the checkpoint's.
            message: First line of the commit.
            blocking: Return when it has arrived, or has failed.

        Returns:
            With `blocking`, whether everything has arrived; else whether something was put in line.
        """
        if rank() != 0 or not self.pushes_at(reason):
            return False
        try:
            path = Path(folder)
            checkpoint = open_checkpoint(path) if reason == "save" else None
            if step is None and checkpoint is not None:
                step = checkpoint.step
            model = checkpoint.model_files() if checkpoint is not None else []
            every = [file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()]
            wanted = [target for target in targets(self.strategy, reason, step, model, every) if target.files]
            self._enqueue(self._linked(path, wanted), message or _message(reason, step))
        except Exception as error:
            self._failed(error)
            return False
        return self.wait() if blocking else True

    def _linked(self, folder: Path, wanted: Iterable[Target]) -> list[Upload]:
        """The targets with folders of our own, whose files stay when the checkpoint is deleted."""
        root = self._root or folder.parent
        _sweep(root)
        uploads: list[Upload] = []
        try:
            for target in wanted:
                uploads.append(Upload(target, root / f"{_STAGED}{os.getpid()}-{next(self._numbers)}"))
                _link_files(folder, uploads[-1])
        except BaseException:
            _drop(uploads)
            raise
        return uploads

    def _enqueue(self, uploads: Iterable[Upload], message: str) -> None:
        with self._changed:
            for upload in uploads:
                _drop([old] if (old := self._pending.pop(upload.target.path, None)) else [])
                self._pending[upload.target.path] = upload
            self._message = redact(message, self._hidden)
            self._start()

    def _start(self) -> None:
        """Have a thread send what waits; the caller holds the lock."""
        self._resting = False
        if self._worker is None:
            # A daemon: a hub that never answers must not keep the program from ending. `wait` is the way to wait.
            self._worker = threading.Thread(target=self._work, name="hub-pusher", daemon=True)
            self._worker.start()

    def _work(self) -> None:
        while batch := self._take():
            try:
                self.commit, self.error = self._repository.send(batch, self._message_sent), None
                _drop(batch)
            except Exception as error:
                self._failed(error)
                self._put_back(batch)

    def _take(self) -> list[Upload]:
        """All that waits; nothing ends the thread."""
        with self._changed:
            batch = [] if self._resting else list(self._pending.values())
            if batch:
                self._pending.clear()
                self._message_sent = self._message
            else:
                self._worker = None
                self._changed.notify_all()
            return batch

    def _put_back(self, batch: list[Upload]) -> None:
        """Keep what could not be sent for the next push, unless something newer has its place."""
        with self._changed:
            self._resting = not self._pending
            for upload in batch:
                if upload.target.path in self._pending:
                    _drop([upload])
                else:
                    self._pending[upload.target.path] = upload

    def wait(self, timeout_s: float | None = 1800.0) -> bool:
        """Return when everything has been sent or given up.

        Args:
            timeout_s: Seconds to wait at most; None for ever.

        Returns:
            Whether everything has arrived. If not, `error` says why, and the local files are as they were.
        """
        with self._changed:
            if self._pending:
                self._start()  # one more try for what was put back
            if not self._changed.wait_for(lambda: self._worker is None, timeout_s):
                self._failed(CheckpointError("hub", f"no end of the push within {timeout_s:.0f} s", "Push later."))
                return False
            return not self._pending

    def _failed(self, error: BaseException) -> None:
        self.error = redact(str(error), self._hidden)
        _log.warning("Push to %s: %s", self.repo_id, self.error)


def _message(reason: Event, step: int | None) -> str:
    if reason == "end":
        return "End of training"
    return "Training in progress" if step is None else f"Training in progress, step {step}"


def _link_files(folder: Path, upload: Upload) -> None:
    for name in upload.target.files:
        aside = upload.folder / name
        aside.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(folder / name, aside)
        except OSError:  # another file system, or one without links
            shutil.copyfile(folder / name, aside)


def _drop(uploads: Iterable[Upload]) -> None:
    for upload in uploads:
        shutil.rmtree(upload.folder, ignore_errors=True)


def _sweep(root: Path) -> None:
    """Remove what dead processes left in line."""
    for path in root.glob(f"{_STAGED}*"):
        owner = path.name.removeprefix(_STAGED).partition("-")[0]
        if owner.isdigit() and not _alive(int(owner)):
            shutil.rmtree(path, ignore_errors=True)


def _alive(process: int) -> bool:
    if os.name == "nt":  # there, a signal of 0 is not a question
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
