"""The training loop, on one screen: epochs, windows of batches, optimizer steps, events."""

from __future__ import annotations

from typing import Any

from .after_step import log_evaluate_save
from .run import Run


def run(run: Run) -> None:
    """Train from the run's position to the end of its plan. Everything it does is a named call."""
    events, control = run.events, run.events.control
    events.fire("on_train_begin")
    if run.args.eval_on_start:
        run.evaluate()
    for epoch in run.plan.epochs_left(run.position, run.state.global_step):
        events.fire("on_epoch_begin")
        run.engine.watch(run.model)
        grad_norm = learning_rate = None
        for window in run.windows(epoch):
            events.fire("on_step_begin")
            if not accumulate(run, window):
                break
            grad_norm = run.engine.clip(run.model, run.optimizer, run.args.max_grad_norm)
            events.fire("on_pre_optimizer_step")
            run.finish_snapshot(before_backward=False)
            run.engine.step(run.optimizer)
            events.fire("on_optimizer_step")
            learning_rate = run.learning_rate()
            run.step_scheduler()
            run.engine.zero_grad(run.model)
            run.count(window)
            events.fire("on_step_end")
            log_evaluate_save(run, grad_norm, learning_rate)
            if control.stops:
                break
        run.end_epoch()
        events.fire("on_epoch_end")
        log_evaluate_save(run, grad_norm, learning_rate)
        if control.should_training_stop:
            break


def accumulate(run: Run, window: list[Any]) -> bool:
    """Forward and backward over the batches of one step; False if a callback stopped between two of them."""
    trainer, engine, meter = run.trainer, run.engine, run.meter
    n_items = trainer.count_items(window)
    run.finish_snapshot(before_backward=True)
    last = len(window) - 1
    for number, inputs in enumerate(window):
        with engine.accumulating(run.model, number == last):
            loss = run.training_step(run.model, inputs, n_items)
        meter.add(loss, run.steps_since_log)
        run.track(inputs)
        if number < last:
            run.events.fire("on_substep_end")
            if run.events.control.stops:
                engine.zero_grad(run.model)
                return False
    return True
