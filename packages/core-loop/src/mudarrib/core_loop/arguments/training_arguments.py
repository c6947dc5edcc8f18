"""All arguments of a run in one dataclass, joined from those by concern."""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from . import legacy, names
from .checkpointing import CheckpointArguments
from .data import DataArguments
from .distributed import DistributedArguments
from .evaluation import EvaluationArguments
from .hub import HubArguments
from .logging import LoggingArguments
from .optim import OptimArguments
from .precision import PrecisionArguments
from .schedule import ScheduleArguments
from .setters import Setters
from .validate import validate

JSON_FIELDS = (
    "accelerator_config",
    "fsdp_config",
    "deepspeed",
    "activation_checkpointing_kwargs",
    "gradient_checkpointing_kwargs",
    "lr_scheduler_kwargs",
)
PATH_FIELDS = ("accelerator_config", "fsdp_config", "deepspeed")
SCHEMA = 1


class AcceptsOldSpellings(type):
    """Translates the old spellings among a class's keywords before its fields are set."""

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        positional = dict(zip((field.name for field in dataclasses.fields(cls)), args, strict=False))  # type: ignore[arg-type]  # its classes are dataclasses
        twice = positional.keys() & keywords.keys()
        if twice:
            raise TypeError(f"{cls.__name__} got two values for {sorted(twice)[0]!r}.")
        keywords = {**positional, **keywords}
        extras = legacy.translate(cls, keywords)
        instance = super().__call__(**keywords)
        for name, value in extras.items():
            setattr(instance, name, value)
        return instance

    @property
    def __signature__(cls) -> inspect.Signature:
        signature = inspect.signature(cls.__dict__.get("__init__", cls.__init__))  # type: ignore[misc]  # of this very class
        return signature.replace(parameters=list(signature.parameters.values())[1:])


@dataclass
class TrainingArguments(
    Setters,
    DistributedArguments,
    LoggingArguments,
    HubArguments,
    PrecisionArguments,
    EvaluationArguments,
    DataArguments,
    OptimArguments,
    ScheduleArguments,
    CheckpointArguments,
    metaclass=AcceptsOldSpellings,
):
    """How to train. Names, meanings and defaults are those of the peers' class of this name.

    The first positional argument is `output_dir`. Each field has a help text (`parse_args` shows them). Old
    spellings are accepted with one deprecation line each.

    Raises:
        ArgumentError: a value cannot work, or two do not fit; says which, and the fix.
        TypeError: a keyword that never was one; names the nearest.
    """

    def __post_init__(self) -> None:
        self.output_dir: str = str(Path(self.output_dir or "trainer_output").expanduser())
        self._read_json()
        self._choose()
        self._derive()
        validate(self)

    def _read_json(self) -> None:
        for name in JSON_FIELDS:
            value = getattr(self, name)
            if isinstance(value, str) and value.lstrip().startswith("{"):
                setattr(self, name, legacy.parse_json(name, value))
            elif isinstance(value, str) and name in PATH_FIELDS and value:
                setattr(self, name, legacy.read_json(name, value))

    def _choose(self) -> None:
        for name, kind in (
            ("eval_strategy", names.IntervalStrategy),
            ("logging_strategy", names.IntervalStrategy),
            ("save_strategy", names.SaveStrategy),
            ("hub_strategy", names.HubStrategy),
            ("lr_scheduler_type", names.SchedulerType),
            ("train_sampling_strategy", names.SamplingStrategy),
        ):
            setattr(self, name, names.choose(kind, name, getattr(self, name)))
        self.optim: str = str(getattr(self.optim, "value", self.optim))
        given = self.debug.split() if isinstance(self.debug, str) else list(self.debug or [])
        self.debug: list[str] = [names.choose(names.DebugOption, "debug", value) for value in given]

    def _derive(self) -> None:
        for older, newer in (
            ("gradient_checkpointing", "activation_checkpointing"),
            ("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"),
        ):
            value = getattr(self, older) if getattr(self, newer) is None else getattr(self, newer)
            setattr(self, older, value)
            setattr(self, newer, value)
        self.activation_checkpointing: bool = bool(self.activation_checkpointing)
        self.gradient_checkpointing: bool = self.activation_checkpointing
        if isinstance(self.include_num_input_tokens_seen, bool):
            self.include_num_input_tokens_seen: str | bool = "all" if self.include_num_input_tokens_seen else "no"
        if self.eval_strategy != "no":
            self.do_eval = True
        if self.eval_strategy == "steps" and not self.eval_steps:
            self.eval_steps: float | None = self.logging_steps
        follows = self.lr_scheduler_type in ("reduce_lr_on_plateau", "greedy")
        if self.metric_for_best_model is None and (
            self.load_best_model_at_end or follows or self.save_strategy == "best"
        ):
            self.metric_for_best_model: str | None = "loss"
        if self.greater_is_better is None and self.metric_for_best_model is not None:
            self.greater_is_better: bool | None = not self.metric_for_best_model.endswith("loss")
        if self.torch_compile_backend is not None or self.torch_compile_mode is not None:
            self.torch_compile = True
        self.report_to: list[str] = self._reports()
        if self.disable_tqdm is None:
            self.disable_tqdm: bool | None = logging.getLogger("mudarrib").getEffectiveLevel() > logging.WARNING

    def _reports(self) -> list[str]:
        given = [self.report_to] if isinstance(self.report_to, str) else list(self.report_to or [])
        if given == ["all"]:
            from transformers.integrations import get_available_reporting_integrations

            return list(get_available_reporting_integrations())
        return [name for name in given if name != "none"]

    # Derived

    @property
    def train_batch_size(self) -> int:
        """Rows of a training batch in this process."""
        return self.per_device_train_batch_size

    @property
    def eval_batch_size(self) -> int:
        """Rows of an evaluation batch in this process."""
        return self.per_device_eval_batch_size

    @property
    def folder(self) -> Path:
        """`output_dir` as a path."""
        return Path(self.output_dir or "trainer_output")

    @property
    def is_first(self) -> bool:
        """Whether this process is the first of all, or of its machine where each has its own logs."""
        return (self.local_process_index if self.log_on_each_node else self.process_index) == 0

    @property
    def should_log(self) -> bool:
        """Whether this process logs."""
        return self.is_first

    @property
    def should_save(self) -> bool:
        """Whether this process writes files."""
        return (self.local_process_index if self.save_on_each_node else self.process_index) == 0

    def get_process_log_level(self) -> int:
        """Level for this process: `log_level` where it is the main one, else `log_level_replica`.

        `passive` means INFO on the main process and WARNING on the others.
        """
        level = names.LOG_LEVELS[self.log_level if self.is_first else self.log_level_replica]
        return level if level >= 0 else logging.INFO if self.is_first else logging.WARNING

    # As data

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain data; tokens are replaced by their name."""
        values = {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}
        return {
            name: f"<{name.upper()}>" if name.endswith("_token") and value else value for name, value in values.items()
        }

    def to_json_string(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def to_sanitized_dict(self) -> dict[str, Any]:
        """The fields as numbers, booleans and texts, for reports."""
        values = {**self.to_dict(), "train_batch_size": self.train_batch_size, "eval_batch_size": self.eval_batch_size}
        return {name: v if isinstance(v, bool | int | float | str) else str(v) for name, v in values.items()}

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the fields to a JSON file, with the number of its schema; tokens are left out."""
        values = {name: value for name, value in self.to_dict().items() if not name.endswith("_token")}
        Path(path).write_text(json.dumps({"schema": SCHEMA, **values}, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> TrainingArguments:
        """The arguments that `to_json` wrote."""
        values = legacy.read_json("path", str(path))
        values.pop("schema", None)
        return cls(**values)


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value))
    return str(value)
