"""One write at a time beside the loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class BackgroundWriter:
    """Runs a job in a thread; the next `start` or `wait` waits for it and raises its error."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, job: Callable[[], object]) -> None:
        """Run `job` in a thread, after the one before it.

        Raises:
            Exception: What the job before raised; `job` is then not run.
        """
        self.wait()
        # Not a daemon: a program that ends without wait() still ends only when the checkpoint is whole.
        self._thread = threading.Thread(target=self._run, args=(job,), name="ckpt-writer", daemon=False)
        self._thread.start()

    def wait(self) -> None:
        """Return when nothing is being written.

        Raises:
            Exception: What the last job raised; once.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:
            _log.error("A checkpoint could not be written: %s", error)
            self._error = error
