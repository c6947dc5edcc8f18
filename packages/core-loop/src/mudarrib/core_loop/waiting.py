"""A line for people who wait: what takes long, and for how many seconds already."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from .callbacks.progress import bar

QUIET_S = 2.0
BETWEEN_S = 0.5
_one_at_a_time = threading.Lock()


@contextlib.contextmanager
def shown_if_long(trainer: Any, what: str) -> Iterator[None]:
    """Show `what` with its seconds on a terminal or in a notebook, once it takes longer than two; gone at its end.

    Only by the first process, unless `disable_tqdm` is given. Within another one nothing more is shown.
    """
    wanted = trainer.args.process_index == 0 and not trainer.args.disable_tqdm
    if not wanted or not _one_at_a_time.acquire(blocking=False):
        yield
        return
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(what, ended), name="waiting", daemon=True)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()
        _one_at_a_time.release()


def _watch(what: str, ended: threading.Event) -> None:
    if ended.wait(QUIET_S):
        return
    line = bar(desc=what, bar_format="{desc}: {elapsed}", leave=False)
    if not line.disable:
        line.start_t -= QUIET_S
    while not ended.wait(BETWEEN_S):
        line.refresh()
    line.close()
