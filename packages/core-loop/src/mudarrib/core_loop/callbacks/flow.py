"""When to log, evaluate, save and stop, as the arguments say."""

from __future__ import annotations

from typing import Any

from .base import TrainerCallback


class DefaultFlowCallback(TrainerCallback):
    """Asks for logs, evaluations and checkpoints by the strategies of the arguments, and ends the run."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        step = state.global_step
        if args.logging_strategy == "steps" and step % state.logging_steps == 0:
            control.should_log = True
        if step == 1 and args.logging_first_step:
            control.should_log = True
        evaluates = args.eval_strategy == "steps" and args.eval_delay <= step
        if evaluates and step % state.eval_steps == 0:
            control.should_evaluate = True
        if args.save_strategy == "steps" and state.save_steps > 0 and step % state.save_steps == 0:
            control.should_save = True
        if step >= state.max_steps:
            control.should_training_stop = True
            control.should_evaluate = control.should_evaluate or evaluates
            control.should_save = control.should_save or args.save_strategy == "steps"

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.logging_strategy == "epoch":
            control.should_log = True
        if args.eval_strategy == "epoch" and args.eval_delay <= state.epoch:
            control.should_evaluate = True
        if args.save_strategy == "epoch":
            control.should_save = True
