"""`SFTConfig`: the arguments of a Trainer, and those of supervised fine-tuning."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass, field
from typing import Any

from mudarrib.core_loop import ArgumentError, TrainingArguments

from .packing import STRATEGIES


def option(default: Any, text: str, **metadata: Any) -> Any:
    """A field with its default and its help text."""
    return field(default=default, metadata={"help": text, **metadata})


@dataclass
class SFTConfig(TrainingArguments):
    """Arguments of `SFTTrainer`; the help text of each field says what it does.

    Defaults that differ from `TrainingArguments`, as in TRL: `learning_rate` 2e-5, `logging_steps` 10,
    `gradient_checkpointing` on, `bf16` on. The last only where the hardware computes in bfloat16: on a CPU it is off,
    since there it makes training slower and coarser.

    Raises:
        ArgumentError: a value that can't work; names the field, the value and the fix.
    """

    learning_rate: float = option(2e-5, "Peak learning rate.")
    logging_steps: float = option(10, "Log every so many steps; below 1, every such share of all steps.")
    gradient_checkpointing: bool = option(True, "Recompute activations in the backward pass, to save memory.")
    bf16: bool = option(None, "Mixed precision in bfloat16; by default where a GPU has it and fp16 is off.")

    model_init_kwargs: dict[str, Any] | str | None = field(
        default=None,
        metadata={"help": "Arguments of AutoModelForCausalLM.from_pretrained, for a model that is given by name."},
    )
    trust_remote_code: bool = option(False, "Run the code that comes with a model or tokenizer given by name.")
    router_aux_loss_coef: float | None = option(
        None, "Weight of the load-balancing loss of a mixture of experts; 0 turns it off; default: the model's own."
    )
    chat_template_path: str | None = option(
        None, "A .jinja file, or a tokenizer (folder or name) whose chat template and added tokens are taken over."
    )

    dataset_text_field: str = option("text", "Column that holds the text.")
    dataset_kwargs: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "{'skip_prepare_dataset': True} leaves the data set as it is."}
    )
    dataset_num_proc: int | None = option(
        None, "Most processes to tokenise with; as many as pay for themselves (10,000 rows each) are started."
    )
    eos_token: str | None = option(None, "Token that ends an answer; by default the tokenizer's.")
    max_length: int | None = option(1024, "Tokens of a row at most, and the length of packed rows; None: no cut.")
    truncation_mode: str = option("keep_start", "Which end of a long row is kept.", choices=["keep_start", "keep_end"])
    shuffle_dataset: bool = option(False, "Shuffle the data set once, before it is packed.")
    packing: bool = option(False, "Put several examples into a row, without attention from one to another.")
    packing_strategy: str = option(
        "bfd",
        "bfd: best fit decreasing, long examples are cut; bfd_split: they are split; wrapped: end to end, cut.",
        choices=list(STRATEGIES),
    )
    padding_free: bool = option(False, "Join the examples of a batch into one row, without padding.")
    pad_to_multiple_of: int | str | None = option("auto", "Round the length of batches up to a multiple; auto: don't.")
    eval_packing: bool | None = option(None, "Pack the evaluation data; by default as the training data.")

    completion_only_loss: bool | None = option(
        None, "Learn the completion alone; by default where the data tell it apart."
    )
    assistant_only_loss: bool = option(False, "Learn the assistant's turns alone.")
    loss_type: str = option(
        "nll",
        "nll, or dft: each token's loss times its probability (arXiv 2508.05629).",
        choices=["nll", "dft", "chunked_nll"],
    )
    activation_offloading: bool = option(False, "Keep the activations in CPU memory until the backward pass.")
    pad_token: str | None = option(None, "Token to pad with; by default the tokenizer's.")
    max_seq_length: int | None = option(None, "Old spelling of max_length.")

    def __post_init__(self) -> None:
        if self.bf16 is None:
            self.bf16 = not self.fp16 and not self.use_cpu and computes_in_bfloat16()
        super().__post_init__()
        self.settle()

    def settle(self) -> None:
        """Resolve old spellings and "auto", and check the fields of this class."""
        if self.max_seq_length is not None:
            deprecated("max_seq_length", "max_length")
            self.max_length, self.max_seq_length = self.max_seq_length, None
        if self.loss_type == "chunked_nll":
            deprecated("loss_type='chunked_nll'", "loss_type='nll'")
            self.loss_type = "nll"
        if self.pad_to_multiple_of in ("auto", "none", "null", "None"):
            self.pad_to_multiple_of = None
        for name in ("model_init_kwargs", "dataset_kwargs"):
            setattr(self, name, as_dict(name, getattr(self, name)))
        self._check()

    def _check(self) -> None:
        check_choice("truncation_mode", self.truncation_mode, ("keep_start", "keep_end"))
        check_choice("packing_strategy", self.packing_strategy, STRATEGIES)
        check_choice("loss_type", self.loss_type, ("nll", "dft"))
        self.pad_to_multiple_of = whole_number("pad_to_multiple_of", self.pad_to_multiple_of)
        self.max_length = whole_number("max_length", self.max_length)
        self.dataset_num_proc = whole_number("dataset_num_proc", self.dataset_num_proc)
        if self.max_length is None and (self.packing or self.eval_packing):
            raise ArgumentError("max_length", None, "packing needs the length of a row; set max_length")
        unknown = set(self.dataset_kwargs or {}) - {"skip_prepare_dataset"}
        if unknown:
            raise ArgumentError("dataset_kwargs", sorted(unknown), "only 'skip_prepare_dataset' is known")
        if self.loss_type == "dft" and self.label_smoothing_factor:
            raise ArgumentError(
                "label_smoothing_factor", self.label_smoothing_factor, "it has no meaning with loss_type='dft'"
            )

    @property
    def packs_eval(self) -> bool:
        """Whether evaluation data are packed."""
        return self.packing if self.eval_packing is None else self.eval_packing

    @property
    def skips_preparation(self) -> bool:
        """Whether the data sets are taken as they are."""
        return bool(isinstance(self.dataset_kwargs, dict) and self.dataset_kwargs.get("skip_prepare_dataset"))

    @classmethod
    def of(cls, args: TrainingArguments, **options: Any) -> SFTConfig:
        """A config with the values of plain arguments, and the given fields of this class.

        Values that the plain arguments hold are kept, also where this class has another default.
        """
        config = cls.__new__(cls)
        if not isinstance(args, cls):
            inherited = {f.name for f in dataclasses.fields(TrainingArguments)}
            for own in dataclasses.fields(cls):
                if own.name not in inherited:
                    setattr(config, own.name, own.default)
        vars(config).update(vars(args))
        for name, value in options.items():
            setattr(config, name, value)
        config.settle()
        return config


def computes_in_bfloat16() -> bool:
    """Whether a GPU is there that does."""
    import torch  # here, so that a command answers --help without it

    return torch.cuda.is_available() and torch.cuda.is_bf16_supported()


def deprecated(old: str, new: str) -> None:
    """One line that an old spelling was used."""
    warnings.warn(
        f"{old} is an old spelling of {new}; it works, and {new} is its name now.", FutureWarning, stacklevel=4
    )


def as_dict(name: str, value: Any) -> dict[str, Any] | None:
    """A dict that was given as one, or as JSON on a command line."""
    if isinstance(value, str):
        import json

        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ArgumentError(name, value, f"give a dict, or JSON: {error}") from error
    if value is not None and not isinstance(value, dict):
        raise ArgumentError(name, value, "give a dict")
    return value


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a value that isn't one of the choices."""
    if value not in choices:
        raise ArgumentError(name, value, f"choose one of {', '.join(choices)}")


def whole_number(name: str, value: int | str | None) -> int | None:
    """A number of at least 1, or None.

    Raises:
        ArgumentError: it is neither.
    """
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1:
        raise ArgumentError(name, value, "give a whole number of at least 1, or None")
    return number
