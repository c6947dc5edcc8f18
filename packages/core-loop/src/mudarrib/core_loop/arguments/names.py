"""The values that arguments choose among; each equals its text, so that `== "epoch"` works."""

from __future__ import annotations

import difflib
from enum import StrEnum
from typing import Any, TypeVar

from ..errors import ArgumentError

Choice = TypeVar("Choice", bound=StrEnum)


class IntervalStrategy(StrEnum):
    NO = "no"
    STEPS = "steps"
    EPOCH = "epoch"


class SaveStrategy(StrEnum):
    NO = "no"
    STEPS = "steps"
    EPOCH = "epoch"
    BEST = "best"


class HubStrategy(StrEnum):
    END = "end"
    EVERY_SAVE = "every_save"
    CHECKPOINT = "checkpoint"
    ALL_CHECKPOINTS = "all_checkpoints"


class SchedulerType(StrEnum):
    LINEAR = "linear"
    COSINE = "cosine"
    COSINE_WITH_RESTARTS = "cosine_with_restarts"
    POLYNOMIAL = "polynomial"
    CONSTANT = "constant"
    CONSTANT_WITH_WARMUP = "constant_with_warmup"
    INVERSE_SQRT = "inverse_sqrt"
    REDUCE_ON_PLATEAU = "reduce_lr_on_plateau"
    COSINE_WITH_MIN_LR = "cosine_with_min_lr"
    COSINE_WARMUP_WITH_MIN_LR = "cosine_warmup_with_min_lr"
    WARMUP_STABLE_DECAY = "warmup_stable_decay"
    GREEDY = "greedy"


class SamplingStrategy(StrEnum):
    RANDOM = "random"
    SEQUENTIAL = "sequential"
    GROUP_BY_LENGTH = "group_by_length"


class DebugOption(StrEnum):
    UNDERFLOW_OVERFLOW = "underflow_overflow"


LOG_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50, "passive": -1}


def choose(kind: type[Choice], argument: str, value: Any) -> Choice:
    """The choice that a text, or an enum member of the peers, names.

    Raises:
        ArgumentError: there is none; names the nearest.
    """
    text = str(getattr(value, "value", value)).lower()
    known = [choice.value for choice in kind]
    if isinstance(value, bool) or text not in known:
        near = difflib.get_close_matches(text, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ArgumentError(argument, value, f"{hint}give one of {', '.join(known)}")
    return kind(text)
