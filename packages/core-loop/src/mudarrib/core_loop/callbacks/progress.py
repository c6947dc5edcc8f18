"""Progress for people: a bar on a terminal or in a notebook, a table line for each log."""

from __future__ import annotations

import sys
import time
from typing import Any

from .base import TrainerCallback

SHOWN_ON_BAR = {"loss": "loss", "learning_rate": "lr", "eval_loss": "eval_loss", "grad_norm": "grad"}


def table_line(logs: dict[str, Any], max_str_len: int = 100) -> str:
    """One log as aligned `name value` pairs, numbers in four significant digits."""
    cells = []
    for name, value in logs.items():
        if name == "total_flos":
            continue
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        if len(text) > max_str_len:
            text = text[:max_str_len] + "…"
        cells.append(f"{name} {text:<10}" if len(text) < 10 else f"{name} {text}")
    return "  ".join(cells).rstrip()


def bar(**settings: Any) -> Any:
    """A bar of tqdm on a terminal or in a notebook, and nothing where the output goes to a file or a pipe."""
    from tqdm.auto import tqdm

    return tqdm(dynamic_ncols=True, disable=None, **settings)


class ProgressCallback(TrainerCallback):
    """A bar with loss, rate, speed and time left, on a terminal or in a notebook; a line for each log."""

    def __init__(self, max_str_len: int = 100) -> None:
        self.max_str_len = max_str_len
        self.training_bar: Any = None
        self.prediction_bar: Any = None
        self.seen: int = 0
        self.shown_at: float = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            total, done = state.max_steps, state.global_step
            self.training_bar = bar(total=total, initial=done, desc="train", unit="step")
        self.seen = state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # A bar that is updated at each step costs more than a small model's step.
        now = time.monotonic()
        if self.training_bar is not None and (now - self.shown_at > 0.1 or state.global_step >= state.max_steps):
            self.training_bar.update(state.global_step - self.seen)
            self.seen, self.shown_at = state.global_step, now

    def on_prediction_step(self, args: Any, state: Any, control: Any, eval_dataloader: Any = None, **kw: Any) -> None:
        if not state.is_world_process_zero:
            return
        if self.prediction_bar is None:
            total = len(eval_dataloader) if hasattr(eval_dataloader, "__len__") else None
            leave = self.training_bar is None
            self.prediction_bar = bar(total=total, leave=leave, desc="evaluate", unit="batch")
        self.prediction_bar.update(1)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.close_prediction_bar()

    def on_predict(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.close_prediction_bar()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if self.training_bar is None or not logs:
            return
        shown = {short: f"{logs[name]:.3g}" for name, short in SHOWN_ON_BAR.items() if name in logs}
        if shown:
            self.training_bar.set_postfix(shown, refresh=False)
        self.training_bar.write(table_line(logs, self.max_str_len), file=sys.stdout)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.training_bar is not None:
            self.training_bar.update(state.global_step - self.seen)
            self.training_bar.close()
            self.training_bar = None

    def close_prediction_bar(self) -> None:
        if self.prediction_bar is not None:
            self.prediction_bar.close()
            self.prediction_bar = None


class PrinterCallback(TrainerCallback):
    """A line for each log, where no bar is wanted."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if state.is_local_process_zero and logs:
            print(table_line(logs), flush=True)
