"""Stop when the metric no longer improves."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError
from ..logs import Logger, get_logger
from ..state import ExportableState
from .base import TrainerCallback

logger: Logger = get_logger(__name__)


class EarlyStoppingCallback(TrainerCallback, ExportableState):
    """Ends the run after `early_stopping_patience` evaluations in a row without improvement.

    Args:
        early_stopping_patience: How many evaluations may fail to improve `metric_for_best_model`.
        early_stopping_threshold: An improvement counts only if it is larger than this.

    The count is saved with each checkpoint.
    """

    def __init__(self, early_stopping_patience: int = 1, early_stopping_threshold: float | None = 0.0) -> None:
        if early_stopping_patience < 1:
            raise ArgumentError("early_stopping_patience", early_stopping_patience, "give a number of at least 1")
        self.early_stopping_patience = early_stopping_patience
        self.early_stopping_threshold: float = early_stopping_threshold or 0.0
        self.early_stopping_patience_counter: int = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.metric_for_best_model is None:
            raise ArgumentError("metric_for_best_model", None, "name the metric that EarlyStoppingCallback watches")
        if args.eval_strategy == "no":
            raise ArgumentError("eval_strategy", "no", 'give "steps" or "epoch": early stopping needs evaluations')
        if not args.load_best_model_at_end:
            logger.warning("Early stopping without load_best_model_at_end=True: the last model is kept, not the best.")

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        name = args.metric_for_best_model
        name = name if name.startswith("eval_") else f"eval_{name}"
        value = (metrics or {}).get(name)
        if value is None:
            logger.warning("Early stopping is off for this evaluation: it has no %s, only %s.", name, sorted(metrics))
            return
        if self.improves(args, state, value):
            self.early_stopping_patience_counter = 0
        else:
            self.early_stopping_patience_counter += 1
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            control.should_training_stop = True

    def improves(self, args: Any, state: Any, value: float) -> bool:
        if state.best_metric is None:
            return True
        gain = value - state.best_metric if args.greater_is_better else state.best_metric - value
        return bool(gain > self.early_stopping_threshold)

    def state(self) -> dict[str, Any]:
        return {
            "args": {
                "early_stopping_patience": self.early_stopping_patience,
                "early_stopping_threshold": self.early_stopping_threshold,
            },
            "attributes": {"early_stopping_patience_counter": self.early_stopping_patience_counter},
        }
