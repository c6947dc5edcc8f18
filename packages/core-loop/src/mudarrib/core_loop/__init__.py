"""The training loop of mudarrib: `Trainer`, `TrainingArguments`, callbacks, evaluation.

Names are loaded when they are first used, so that the arguments of a script answer before torch is there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .arguments import TrainingArguments
    from .arguments.cli import parse_args
    from .callbacks import (
        DefaultFlowCallback,
        EarlyStoppingCallback,
        PrinterCallback,
        ProgressCallback,
        TrainerCallback,
    )
    from .errors import ArgumentError
    from .outputs import EvalLoopOutput, EvalPrediction, PredictionOutput, TrainOutput
    from .seeding import enable_full_determinism, set_seed
    from .state import ExportableState, TrainerControl, TrainerState
    from .trainer import Trainer

_HOME = {
    "TrainingArguments": "arguments",
    "parse_args": "arguments.cli",
    "ArgumentError": "errors",
    "DefaultFlowCallback": "callbacks",
    "EarlyStoppingCallback": "callbacks",
    "PrinterCallback": "callbacks",
    "ProgressCallback": "callbacks",
    "TrainerCallback": "callbacks",
    "EvalLoopOutput": "outputs",
    "EvalPrediction": "outputs",
    "PredictionOutput": "outputs",
    "TrainOutput": "outputs",
    "ExportableState": "state",
    "TrainerControl": "state",
    "TrainerState": "state",
    "Trainer": "trainer",
    "enable_full_determinism": "seeding",
    "set_seed": "seeding",
}

__all__ = [
    "ArgumentError",
    "DefaultFlowCallback",
    "EarlyStoppingCallback",
    "EvalLoopOutput",
    "EvalPrediction",
    "ExportableState",
    "PredictionOutput",
    "PrinterCallback",
    "ProgressCallback",
    "TrainOutput",
    "Trainer",
    "TrainerCallback",
    "TrainerControl",
    "TrainerState",
    "TrainingArguments",
    "__version__",
    "enable_full_determinism",
    "parse_args",
    "set_seed",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
