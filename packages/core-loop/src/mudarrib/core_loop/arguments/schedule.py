"""How long a run is, and how its learning rate moves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .field import argument
from .names import SchedulerType


@dataclass
class ScheduleArguments:
    per_device_train_batch_size: int = argument(8, "Rows of a training batch on each device.")
    num_train_epochs: float = argument(3.0, "Passes over the data; a fraction ends within one.")
    max_steps: int = argument(-1, "Optimizer steps in all, if above 0; then num_train_epochs is not used.")
    learning_rate: float = argument(5e-5, "The highest learning rate.")
    lr_scheduler_type: SchedulerType | str = argument("linear", "Schedule of the learning rate.")
    lr_scheduler_kwargs: dict[str, Any] | str | None = argument(None, "Further settings of the schedule, as a dict.")
    warmup_steps: float = argument(0, "Steps in which the rate rises from 0, or a share of all steps if below 1.")
    gradient_accumulation_steps: int = argument(1, "Batches of an optimizer step.")

    def get_warmup_steps(self, num_training_steps: int) -> int:
        """Warm-up steps of a run of `num_training_steps`, of which `warmup_steps` may be a share."""
        if self.warmup_steps >= 1:
            return int(self.warmup_steps)
        return math.ceil(num_training_steps * self.warmup_steps)
