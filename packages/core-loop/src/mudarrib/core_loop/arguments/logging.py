"""What is logged, when, and where to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .field import argument
from .names import IntervalStrategy


@dataclass
class LoggingArguments:
    logging_strategy: IntervalStrategy | str = argument(
        "steps", "When to log: 'no', 'steps' (every logging_steps), 'epoch'."
    )
    logging_steps: float = argument(500, "Steps between logs, or a share of all steps if below 1.")
    logging_first_step: bool = argument(False, "Log the first step too.")
    log_on_each_node: bool = argument(True, "On several machines, log by log_level on each; else on the first alone.")
    logging_nan_inf_filter: bool = argument(True, "Leave losses that are not finite out of the logged mean.")
    log_level: str = argument(
        "passive", "Level on the main process: debug, info, warning, error, critical, or passive (info)."
    )
    log_level_replica: str = argument("warning", "Level on the other processes.")
    disable_tqdm: bool | None = argument(None, "Print lines instead of a bar; by default where warnings are off.")
    report_to: None | str | list[str] = argument(
        "none",
        "Tools to report to: 'tensorboard', 'wandb', 'mlflow' ..., 'all', 'none', or 'report' for our own pictures.",
    )
    run_name: str | None = argument(None, "Name of the run, for reports.")
    project: str = argument("huggingface", "Project of the run, for trackio.")
    trackio_space_id: str | None = argument(None, "Space to report to, for trackio.")
    trackio_bucket_id: str | None = argument(None, "Bucket to report to, for trackio.")
    trackio_static_space_id: str | None | Literal[False] = argument(None, "Static space to report to, for trackio.")
