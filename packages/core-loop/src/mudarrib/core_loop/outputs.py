"""What `train`, `evaluate` and `predict` return, and what a metric function is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple


class TrainOutput(NamedTuple):
    """Result of `train()`: steps done in all, mean training loss of this call, and its metrics."""

    global_step: int
    training_loss: float
    metrics: dict[str, float]


class PredictionOutput(NamedTuple):
    """Result of `predict()`; arrays are padded with -100 where lengths differ."""

    predictions: Any
    label_ids: Any
    metrics: dict[str, float]


class EvalLoopOutput(NamedTuple):
    """Result of one pass over a data set without training."""

    predictions: Any
    label_ids: Any
    metrics: dict[str, float]
    num_samples: int


class EvalPrediction:
    """What `compute_metrics` gets; unpacks as `predictions, label_ids`, then `inputs` and `losses` if asked for.

    Attributes:
        predictions: The model's outputs, NumPy array or tuple of them, shape (rows, ...).
        label_ids: The labels, likewise.
        inputs: The main input, if `include_for_metrics` names "inputs"; else None.
        losses: The loss of each row's batch, if `include_for_metrics` names "loss"; else None.
    """

    def __init__(self, predictions: Any, label_ids: Any, inputs: Any = None, losses: Any = None) -> None:
        self.predictions = predictions
        self.label_ids = label_ids
        self.inputs = inputs
        self.losses = losses
        self.elements: list[Any] = [predictions, label_ids, *(extra for extra in (inputs, losses) if extra is not None)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.elements)

    def __getitem__(self, index: int) -> Any:
        return self.elements[index]
