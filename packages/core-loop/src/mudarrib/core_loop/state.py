"""What a run has done (`TrainerState`) and what is asked of it (`TrainerControl`)."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arguments import TrainingArguments


class ExportableState:
    """An object whose state is saved with each checkpoint and given back on resume.

    `state()` returns `{"args": constructor keywords, "attributes": values to set afterwards}`, JSON only.
    """

    def state(self) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__} must define state() to be saved with a checkpoint.")

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> ExportableState:
        instance = cls(**state["args"])
        for name, value in state["attributes"].items():
            setattr(instance, name, value)
        return instance


@dataclass
class TrainerState:
    """Progress of a run; saved as `trainer_state.json` in every checkpoint.

    One step is one optimizer step: with gradient accumulation it takes several batches.
    `epoch` is fractional while an epoch runs. `logging_steps`, `eval_steps` and `save_steps` hold absolute
    steps, also where the arguments gave a share of all steps. `log_history` is the list of all logs,
    each a flat dict with `step`.
    """

    epoch: float | None = 0
    global_step: int = 0
    max_steps: int = 0
    logging_steps: int = 500
    eval_steps: int | None = 500
    save_steps: int = 500
    train_batch_size: int | None = None
    num_train_epochs: int = 0
    num_input_tokens_seen: int = 0
    total_flos: float = 0
    log_history: list[dict[str, Any]] = field(default_factory=list)
    best_metric: float | None = None
    best_global_step: int | None = None
    best_model_checkpoint: str | None = None
    is_local_process_zero: bool = True
    is_world_process_zero: bool = True
    is_hyper_param_search: bool = False
    trial_name: str | None = None
    trial_params: dict[str, Any] | None = None
    stateful_callbacks: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def save_to_json(self, json_path: str | Path) -> None:
        text = json.dumps(self.to_dict(), indent=2, sort_keys=True)
        Path(json_path).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainerState:
        known = {f.name for f in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    @classmethod
    def load_from_json(cls, json_path: str | Path) -> TrainerState:
        return cls.from_dict(json.loads(Path(json_path).read_text(encoding="utf-8")))

    def compute_steps(self, args: TrainingArguments, max_steps: int) -> None:
        """Turn the shares of `max_steps` among logging, evaluation and save steps into steps."""
        for kind in ("logging_steps", "eval_steps", "save_steps"):
            value = getattr(args, kind)
            if value is not None:
                setattr(self, kind, math.ceil(max_steps * value) if value < 1 else int(value))


@dataclass
class TrainerControl(ExportableState):
    """What callbacks ask of the loop; the loop clears each request when it has been met.

    `should_training_stop` and `should_epoch_stop` end the run or the epoch after the current batch;
    `should_save`, `should_evaluate` and `should_log` act at the end of the current step.
    """

    should_training_stop: bool = False
    should_epoch_stop: bool = False
    should_save: bool = False
    should_evaluate: bool = False
    should_log: bool = False

    @property
    def stops(self) -> bool:
        return self.should_training_stop or self.should_epoch_stop

    def state(self) -> dict[str, Any]:
        return {"args": dataclasses.asdict(self), "attributes": {}}
