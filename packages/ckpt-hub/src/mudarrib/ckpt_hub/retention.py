"""Which checkpoints may go; a pure function."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol


class _Placed(Protocol):
    @property
    def path(self) -> Path: ...
    @property
    def step(self) -> int: ...


def to_delete(
    checkpoints: Sequence[_Placed],
    keep: int | None,
    *,
    newest: Path | None = None,
    protect: Collection[int | Path] = (),
) -> list[Path]:
    """Choose the checkpoints to delete so that `keep` remain.

    Args:
        checkpoints: The valid ones. What is not valid is never counted and never deleted.
        keep: How many shall remain; None for all. The newest and the protected count, and always stay, so more
            than `keep` remain where these alone are more.
        newest: The one saved just now, if not the one of the highest step.
        protect: Steps or paths that always stay, such as the best model's.

    Returns:
        The paths to delete, oldest first.
    """
    if keep is None or not checkpoints:
        return []
    oldest_first = sorted(checkpoints, key=lambda c: c.step)
    last = newest or oldest_first[-1].path
    kept_paths = {path for path in protect if isinstance(path, Path)} | {last}
    optional = [c.path for c in oldest_first if c.path not in kept_paths and c.step not in protect]
    excess = len(oldest_first) - keep
    return optional[: max(excess, 0)]
