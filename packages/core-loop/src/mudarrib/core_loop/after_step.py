"""After a step or an epoch: meet what the control asks for, in the order log, evaluate, save."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from .errors import ArgumentError
from .evaluation import speed_metrics
from .run import Run

if TYPE_CHECKING:
    from .trainer import Trainer


def log_evaluate_save(run: Run, grad_norm: Any, learning_rate: float | None) -> None:
    """Log, evaluate and save where callbacks have asked for it."""
    control = run.events.control
    if control.should_log and run.state.global_step > run.logged_at:
        log_training(run, grad_norm, learning_rate)
    if control.should_evaluate:
        metrics = run.evaluate()
        is_best = note_best(run, metrics)
        follow_metric(run, metrics)
        if run.args.save_strategy == "best":
            control.should_save = is_best
    if control.should_save:
        run.trainer.checkpointing.save(run)
        run.events.fire("on_save")


def log_training(run: Run, grad_norm: Any, learning_rate: float | None) -> None:
    """Log the mean loss since the last log: here, and only here, the loop waits for the device."""
    loss = run.engine.mean(run.meter.drain())
    logs: dict[str, Any] = {"loss": loss / run.steps_since_log}
    if grad_norm is not None:
        logs["grad_norm"] = grad_norm.item() if isinstance(grad_norm, torch.Tensor) else grad_norm
    logs["learning_rate"] = run.learning_rate() if learning_rate is None else learning_rate
    run.logged_at = run.state.global_step
    run.trainer.log(logs, run.started)


def metric_value(args: Any, metrics: dict[str, float]) -> tuple[str, float]:
    """Name and value of the metric that chooses the best model.

    Raises:
        ArgumentError: the evaluation did not give it; names those that it gave.
    """
    name = args.metric_for_best_model
    name = name if name.startswith("eval_") else f"eval_{name}"
    if name not in metrics:
        raise ArgumentError(
            "metric_for_best_model",
            args.metric_for_best_model,
            f"the evaluation gave {sorted(metrics)}; name one of them",
        )
    return name, metrics[name]


def note_best(run: Run, metrics: dict[str, float]) -> bool:
    """Remember the best metric so far; returns whether this evaluation is the best."""
    args, state = run.args, run.state
    if args.metric_for_best_model is None:
        return False
    _, value = metric_value(args, metrics)
    worst = -math.inf if args.greater_is_better else math.inf
    best = worst if state.best_metric is None else state.best_metric
    if not (value > best if args.greater_is_better else value < best):
        state.best_metric = best
        return False
    state.best_metric = value
    if args.save_strategy != "no":
        state.best_global_step = state.global_step
    return True


def follow_metric(run: Run, metrics: dict[str, float]) -> None:
    """Step a schedule that follows the metric rather than the steps."""
    if run.steps_on_metric:
        run.scheduler.step(metric_value(run.args, metrics)[1])


def add_progress(trainer: Trainer, logs: dict[str, Any], started: float | None) -> None:
    """Add the epoch, and the tokens seen where they are counted, to a log."""
    state, counted = trainer.state, trainer.args.include_num_input_tokens_seen
    if state.epoch is not None:
        logs["epoch"] = state.epoch
    if counted not in ("no", False):
        logs["num_input_tokens_seen"] = state.num_input_tokens_seen
        if started is not None:
            logs.update(speed_metrics("train", started, tokens=state.num_input_tokens_seen - trainer.tokens_before))
