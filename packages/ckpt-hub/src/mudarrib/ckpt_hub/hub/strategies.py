"""What each strategy sends, when and where to; pure functions."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from mudarrib.ckpt_hub.errors import CheckpointError

Strategy: TypeAlias = Literal["end", "every_save", "checkpoint", "all_checkpoints"]
Event: TypeAlias = Literal["save", "end"]

LAST = "last-checkpoint"
_NOT_THE_MODEL = re.compile(rf"^_|^checkpoint-\d|^{LAST}/|(^|/)\.")


@dataclass(frozen=True)
class Target:
    """A folder of the repository and what goes there.

    Attributes:
        path: The folder; "" for the top.
        files: Names inside the local folder, which they keep.
        replace: Whether all else in that folder of the repository goes.
    """

    path: str
    files: tuple[str, ...]
    replace: bool = False


def check_strategy(strategy: str) -> Strategy:
    """The strategy, if there is one of that name.

    Raises:
        CheckpointError: There isn't.
    """
    for known in get_args(Strategy):
        if strategy == known:
            return known  # type: ignore[no-any-return]  # get_args forgets the type
    raise CheckpointError("strategy", repr(strategy), f"Use one of {', '.join(get_args(Strategy))}.")


def pushes_at(strategy: Strategy, event: Event) -> bool:
    """Whether anything is sent at this event."""
    return event == "end" or strategy != "end"


def targets(
    strategy: Strategy, event: Event, step: int | None, model: Collection[str], every: Collection[str]
) -> list[Target]:
    """What is sent where.

    Args:
        strategy: "end" sends the run's folder once; "every_save" also the model of each checkpoint, to the top;
            "checkpoint" also the whole checkpoint, to `last-checkpoint`; "all_checkpoints" also the whole
            checkpoint, to `checkpoint-<step>`.
        event: "save": the local folder is a checkpoint; "end": it is the run's.
        step: Optimizer steps done, for the folder's name.
        model: The files of the local folder that make up the model.
        every: All its files.

    Returns:
        The targets; they are sent in one commit.
    """
    if not pushes_at(strategy, event):
        return []
    if event == "end":
        return [Target("", tuple(sorted(name for name in every if not _NOT_THE_MODEL.search(name))))]
    found = [Target("", tuple(sorted(model)))]
    if strategy == "checkpoint":
        found.append(Target(LAST, tuple(sorted(every)), replace=True))
    if strategy == "all_checkpoints":
        found.append(Target(f"checkpoint-{step}", tuple(sorted(every)), replace=True))
    return found
