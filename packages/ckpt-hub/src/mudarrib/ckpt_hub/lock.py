"""One writer per folder, by a lock that the system takes away from a dead process."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import IO

from .errors import CheckpointError

_NAME = ".lock"
_guard = threading.Lock()
_held: dict[tuple[int, Path], _Holding] = {}


class _Holding:
    """The open lock file of one folder, shared by all stores of this process."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file
        self.users = 0


class FolderLock:
    """The right to write in a folder, for one process.

    Several stores of one process share it. It ends with `release`, with this object, or with the process, also
    by SIGKILL: it is a record lock of the kernel, which no child inherits and no file outlives.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._key: tuple[int, Path] | None = None

    def acquire(self) -> None:
        """Take the lock, or see that this process has it.

        Raises:
            CheckpointError: Another living process has it.
        """
        if self._key is not None and self._key[0] == os.getpid():
            return
        key = (os.getpid(), self._root.resolve())
        with _guard:
            if key not in _held:
                _held[key] = _Holding(_open_locked(self._root / _NAME))
            _held[key].users += 1
        self._key = key

    def release(self) -> None:
        """Give the lock back; nothing happens where it isn't held."""
        key, self._key = self._key, None
        if key is None or key[0] != os.getpid():
            return
        with _guard:
            holding = _held[key]
            holding.users -= 1
            if holding.users == 0:
                del _held[key]
                holding.file.close()

    def __del__(self) -> None:
        self.release()


def _open_locked(path: Path) -> IO[str]:
    file = path.open("a+")
    try:
        _lock(file)
    except OSError as error:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        file.close()
        raise CheckpointError(
            "root",
            f"{path.parent} is being written by another process ({owner})",
            "Let it finish or end it, or give this run another folder.",
        ) from error
    file.truncate(0)
    file.write(f"pid {os.getpid()}")
    file.flush()
    return file


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[str]) -> None:
        # Byte 2^30 is past the text, so that another process can still read who holds the lock.
        file.seek(1 << 30)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        file.seek(0)

else:
    import fcntl

    def _lock(file: IO[str]) -> None:
        # lockf, not flock: a forked data-loader worker must not keep the lock of its dead parent.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
