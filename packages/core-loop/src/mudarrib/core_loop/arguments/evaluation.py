"""When and how to evaluate."""

from __future__ import annotations

from dataclasses import dataclass

from .field import argument
from .names import IntervalStrategy


@dataclass
class EvaluationArguments:
    eval_strategy: IntervalStrategy | str = argument(
        "no", "When to evaluate: 'no', 'steps' (every eval_steps), 'epoch'."
    )
    eval_steps: float | None = argument(
        None, "Steps between evaluations, or a share of all steps if below 1; by default logging_steps."
    )
    eval_delay: float = argument(0, "Epochs or steps, by eval_strategy, before the first evaluation.")
    per_device_eval_batch_size: int = argument(8, "Rows of an evaluation batch on each device.")
    prediction_loss_only: bool = argument(False, "Only the loss, no outputs, in evaluation and prediction.")
    eval_on_start: bool = argument(False, "Evaluate once before the first step.")
    eval_do_concat_batches: bool = argument(True, "Join the outputs of all batches; else keep a list.")
    eval_use_gather_object: bool = argument(
        False, "Gather outputs that are no tensors over the processes. Here it is done where it is needed."
    )
    eval_accumulation_steps: int | None = argument(
        None, "Batches whose outputs stay on the device before they go to the CPU; None for all."
    )
    include_for_metrics: list[str] = argument([], "What compute_metrics gets besides: 'inputs', 'loss'.")
    batch_eval_metrics: bool = argument(
        False, "Call compute_metrics for each batch, with compute_result=True at the last, and keep no outputs."
    )
    do_train: bool = argument(False, "For scripts: whether to train. Trainer itself does not read it.")
    do_eval: bool = argument(False, "For scripts: whether to evaluate; True where eval_strategy is set.")
    do_predict: bool = argument(False, "For scripts: whether to predict. Trainer itself does not read it.")
