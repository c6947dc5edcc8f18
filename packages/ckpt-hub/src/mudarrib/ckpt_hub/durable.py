"""Files that are on the disk, and known by their SHA-256, when the writing call returns."""

from __future__ import annotations

import hashlib
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

_CHUNK_BYTES = 8 << 20
_SMALL_BYTES = 1 << 20


class FileRecord(NamedTuple):
    """What the manifest keeps of a file.

    Attributes:
        size: Bytes.
        sha256: Hexadecimal digest of the content.
    """

    size: int
    sha256: str


class _Sha256:
    """A SHA-256 that is computed in a thread of its own: hashing and writing both release the interpreter."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._chunks: queue.SimpleQueue[memoryview | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = threading.Thread(target=self._run, name="ckpt-sha256")
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is ending and starts no thread any more
            self._thread = None

    def update(self, chunk: memoryview) -> None:
        if self._thread is None:
            self._digest.update(chunk)
        else:
            self._chunks.put(chunk)

    def _run(self) -> None:
        while (chunk := self._chunks.get()) is not None:
            self._digest.update(chunk)

    def finish(self) -> str:
        if self._thread is not None:
            self._chunks.put(None)
            self._thread.join()
        return self._digest.hexdigest()


class DurableFile:
    """A new file that is hashed while it is written, and synced to the disk at the end of the `with` block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0
        self._pending = bytearray()
        self.record: FileRecord = FileRecord(0, "")

    def __enter__(self) -> DurableFile:
        self._file = self._path.open("xb", buffering=0)
        self._sha256 = _Sha256()
        return self

    def write(self, data: bytes | memoryview) -> None:
        """Append `data`. It must not change before the block ends."""
        if len(data) < _SMALL_BYTES:
            self._pending += data
            if len(self._pending) >= _SMALL_BYTES:
                self._flush()
            return
        self._flush()
        for start in range(0, len(data), _CHUNK_BYTES):
            self._emit(memoryview(data)[start : start + _CHUNK_BYTES])

    def _flush(self) -> None:
        if self._pending:
            pending, self._pending = self._pending, bytearray()
            self._emit(memoryview(pending))

    def _emit(self, chunk: memoryview) -> None:
        self._sha256.update(chunk)
        start, self._size = self._size, self._size + len(chunk)
        while chunk:
            chunk = chunk[self._file.write(chunk) :]
        if hasattr(os, "posix_fadvise"):
            # Linux starts to write a range to the disk when told that it won't be needed: fsync then finds it done.
            os.posix_fadvise(self._file.fileno(), start, self._size - start, os.POSIX_FADV_DONTNEED)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._flush()
                os.fsync(self._file.fileno())
        finally:
            self._file.close()
            self.record = FileRecord(self._size, self._sha256.finish())


def write_bytes(path: Path, data: bytes) -> FileRecord:
    """Write a small file durably."""
    with DurableFile(path) as file:
        file.write(data)
    return file.record


def hash_file(path: Path) -> FileRecord:
    """Size and SHA-256 of a file as it lies there."""
    with path.open("rb", buffering=0) as file:
        return FileRecord(os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest())


def sync_file(path: Path) -> None:
    """See a file that somebody else wrote onto the disk."""
    with _descriptor(path) as descriptor:
        os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """See the names in a folder onto the disk: without this a rename can be lost with the power."""
    if os.name == "nt":  # Windows opens no folders, and writes its renames through
        return
    with _descriptor(folder) as descriptor:
        os.fsync(descriptor)


@contextmanager
def _descriptor(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
