"""`Seq2SeqTrainingArguments`: the arguments of a Trainer, and those of generation at evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mudarrib.core_loop import ArgumentError, TrainingArguments


@dataclass
class Seq2SeqTrainingArguments(TrainingArguments):
    """Arguments of `Seq2SeqTrainer`.

    Raises:
        ArgumentError: a value that can't work; names the field, the value and the fix.
    """

    sortish_sampler: bool = field(
        default=False, metadata={"help": "Train on batches of similar length, in random order, to save padding."}
    )
    predict_with_generate: bool = field(
        default=False, metadata={"help": "Generate in evaluate() and predict(), for metrics of texts such as BLEU."}
    )
    generation_max_length: int | None = field(
        default=None, metadata={"help": "Most tokens of a generated text; by default what generation_config says."}
    )
    generation_num_beams: int | None = field(
        default=None, metadata={"help": "Beams of the search; by default what generation_config says."}
    )
    generation_config: Any = field(
        default=None, metadata={"help": "A GenerationConfig, or the folder, file or name of one."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("generation_max_length", "generation_num_beams"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ArgumentError(name, value, "give a whole number of at least 1, or None")
        if self.sortish_sampler:
            self.train_sampling_strategy = "group_by_length"

    def to_dict(self) -> dict[str, Any]:
        """The arguments as plain values."""
        values: dict[str, Any] = super().to_dict()
        config = self.generation_config
        if hasattr(config, "to_dict"):
            values["generation_config"] = config.to_dict()
        elif isinstance(config, Path):
            values["generation_config"] = str(config)
        return values
