"""One commit to the hub, tried until it is through or hopeless."""

from __future__ import annotations

import json
import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, OfflineModeIsEnabled

from mudarrib.ckpt_hub.errors import CheckpointError

from .secrets import redact
from .strategies import Target

_log = logging.getLogger(__name__)
_TRY_AGAIN = {408, 409, 412, 425, 429}
_LONGEST_WAIT_S = 60.0
T = TypeVar("T")


@dataclass(frozen=True)
class Upload:
    """A target with the local folder that its files lie in."""

    target: Target
    folder: Path


@dataclass
class Repository:
    """A model repository on the hub.

    Args:
        api: The client.
        repo_id: "user/name", or "name" in the user's own namespace.
        private: Whether a new repository is private; True refuses to send to one that is public.
        revision: The branch, made if need be; None for the main one.
        attempts: How often a transfer is tried before it is given up.
        first_wait_s: Seconds before the second try; doubled each time, up to a minute.
    """

    api: HfApi
    repo_id: str
    private: bool | None
    revision: str | None
    attempts: int = 8
    first_wait_s: float = 1.0
    _ready: bool = False

    def send(self, uploads: Sequence[Upload], message: str) -> str:
        """Commit all the uploads at once.

        Args:
            uploads: What to send where.
            message: First line of the commit.

        Returns:
            The commit's id.

        Raises:
            CheckpointError: It can't be sent; without any word of the token, and without the client's own error,
                which keeps the request and so the token.
        """
        failure: CheckpointError
        for attempt in range(self.attempts):
            try:
                self._prepare()
                operations = list(self._operations(uploads))
                self._send_twins_once(operations)
                commit = self.api.create_commit(
                    self.repo_id, operations, commit_message=message, revision=self.revision
                )
                return str(commit.oid)
            except Exception as error:
                failure = self._explained(error)
                if not is_transient(error) or attempt + 1 == self.attempts:
                    break
                wait = retry_after(error) or min(self.first_wait_s * 2**attempt, _LONGEST_WAIT_S)
                _log.info("Trying again in %.0f s: %s", wait, failure)
                threading.Event().wait(wait * random.uniform(0.8, 1.2))
        raise failure

    def _explained(self, error: BaseException) -> CheckpointError:
        if isinstance(error, CheckpointError):
            return error
        text = redact(f"{type(error).__name__}: {error}".partition("\n\n")[0], _plain(self.api.token))
        return CheckpointError("hub", f"{self.repo_id} did not take the files ({text})", _fix(error))

    def _prepare(self) -> None:
        """See that the repository and its branch are there; once."""
        if self._ready:
            return
        self.repo_id = self.api.create_repo(self.repo_id, private=self.private, exist_ok=True).repo_id
        if self.private and not self.api.repo_info(self.repo_id).private:
            raise CheckpointError(
                "private", f"{self.repo_id} is there and public", "Make it private on the hub, or pass private=False."
            )
        if self.revision not in (None, "main"):
            self.api.create_branch(self.repo_id, branch=self.revision, exist_ok=True)
        self._ready = True

    def _operations(self, uploads: Sequence[Upload]) -> Iterator[CommitOperationAdd | CommitOperationDelete]:
        for upload in uploads:
            prefix = f"{upload.target.path}/" if upload.target.path else ""
            names = {f"{prefix}{name}": upload.folder / name for name in upload.target.files}
            if upload.target.replace:
                yield from map(CommitOperationDelete, sorted(self._remote_files(upload.target.path) - names.keys()))
            for name, path in names.items():
                yield CommitOperationAdd(path_in_repo=name, path_or_fileobj=path)

    def _send_twins_once(self, operations: Sequence[CommitOperationAdd | CommitOperationDelete]) -> None:
        """Upload one of each set of links to the same file; the client would send every one of them."""
        additions = [operation for operation in operations if isinstance(operation, CommitOperationAdd)]
        firsts = {Path(str(addition.path_or_fileobj)).stat().st_ino: addition for addition in reversed(additions)}
        if len(firsts) < len(additions):
            self.api.preupload_lfs_files(self.repo_id, list(firsts.values()), revision=self.revision)

    def _remote_files(self, path: str) -> set[str]:
        try:
            entries = self.api.list_repo_tree(self.repo_id, path, recursive=True, revision=self.revision)
            return {entry.path for entry in entries if hasattr(entry, "size")}
        except EntryNotFoundError:
            return set()


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed later: a busy hub, a cut connection, a race with another commit."""
    for cause in _chain(error):
        if isinstance(cause, HfHubHTTPError):
            status = _status(cause)
            return status is None or status >= 500 or status in _TRY_AGAIN
    if isinstance(error, json.JSONDecodeError):  # an error page where an answer should be
        return True
    hopeless = (CheckpointError, OfflineModeIsEnabled, ValueError, TypeError, FileNotFoundError, PermissionError)
    return not isinstance(error, hopeless)


def retry_after(error: BaseException) -> float | None:
    """Seconds that the hub asks to wait, if it does; at most a minute."""
    for cause in _chain(error):
        text = _attribute(cause, lambda e: e.response.headers.get("Retry-After"))
        if isinstance(text, str) and text.isdigit():
            return min(float(text), _LONGEST_WAIT_S)
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _status(error: BaseException) -> int | None:
    return _attribute(error, lambda e: int(e.response.status_code))


def _attribute(error: BaseException, get: Callable[..., T]) -> T | None:
    try:
        return get(error)
    except (AttributeError, TypeError, ValueError):
        return None


def _fix(error: BaseException) -> str:
    if isinstance(error, OfflineModeIsEnabled):
        return "Unset HF_HUB_OFFLINE to push."
    statuses = [status for status in map(_status, _chain(error)) if status]
    if statuses and statuses[0] in (401, 403, 404):
        return "Check the repository's name and that the token may write to it."
    return "The local files are whole: push them later with `mudarrib-ckpt push`."


def _plain(token: str | bool | None) -> str | None:
    return token if isinstance(token, str) else None
