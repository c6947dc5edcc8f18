"""The bars of `datasets`, for people alone."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import datasets


@contextlib.contextmanager
def bars_for_people() -> Iterator[None]:
    """Bars on a terminal or in a notebook as the user has set; none where the output goes to a pipe or a file.

    `datasets` by itself draws them there, too.
    """
    if sys.stderr.isatty() or "ipykernel" in sys.modules or not datasets.is_progress_bar_enabled():
        yield
        return
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.enable_progress_bars()
