"""What a trainer needs before it can be built: arguments, model, tokenizer, data."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import torch
from datasets import Dataset, IterableDataset
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from mudarrib.core_loop import ArgumentError, TrainingArguments, set_seed

from .attention import attention_of
from .checks import check_causal
from .collate import CausalCollator
from .config import SFTConfig, deprecated
from .formats import Format, FormattingFunc
from .isolation import Isolation
from .lora import is_adapted, with_adapters
from .packing import Strategy
from .prepare import Preparation
from .probe import isolate
from .tokenise import Recipe

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers.utils.quantization_config import QuantizationConfigMixin

OLD_KEYWORDS = {
    "dataset_text_field": "dataset_text_field",
    "max_seq_length": "max_length",
    "max_length": "max_length",
    "packing": "packing",
    "eval_packing": "eval_packing",
    "dataset_num_proc": "dataset_num_proc",
    "dataset_kwargs": "dataset_kwargs",
    "model_init_kwargs": "model_init_kwargs",
    "neftune_noise_alpha": "neftune_noise_alpha",
}

GONE = {  # of TRL's first trainers, with what takes their place
    "infinite": "set max_steps or num_train_epochs",
    "num_of_sequences": "all rows are packed at once",
    "chars_per_token": "rows are packed by their tokens",
    "append_concat_token": "each example ends in EOS",
    "add_special_tokens": "the tokenizer's own special tokens are added, once",
    "dataset_batch_size": "batches of 1,000 rows are tokenized",
}


def resolve_config(args: TrainingArguments | None, model: Any, keywords: dict[str, Any]) -> SFTConfig:
    """One config, from a config, plain arguments or nothing, and keywords that older scripts give the trainer.

    Args:
        args: As given to the trainer; a config is taken as it is where no keyword changes it.
        model: Names the output folder where there are no arguments.
        keywords: Those that belong into the config are taken out.
    """
    for name in GONE.keys() & keywords:
        raise ArgumentError(name, keywords[name], f"leave it out: {GONE[name]}")
    options = {}
    for old, name in OLD_KEYWORDS.items():
        if old in keywords:
            value = keywords.pop(old)
            deprecated(f"SFTTrainer({old}=…)", f"SFTConfig({name}=…)")
            if value is not None:
                options[name] = value
    if args is None:
        name = model if isinstance(model, str) else getattr(getattr(model, "config", None), "_name_or_path", "")
        args = SFTConfig(output_dir=f"{Path(name or 'model').name}-SFT")
    elif not isinstance(args, TrainingArguments):
        kind = f"{type(args).__module__}.{type(args).__name__}"
        raise ArgumentError("args", kind, "give mudarrib.sft.SFTConfig or mudarrib.core_loop.TrainingArguments")
    if isinstance(args, SFTConfig) and not options:
        return args
    return SFTConfig.of(args, **options)


def load_model(model: Any, config: SFTConfig, quantization: QuantizationConfigMixin | None) -> nn.Module:
    """The model itself, or the one with that name.

    A model given by name is loaded in float32 unless `model_init_kwargs` has a `dtype` or it is quantized: weights in
    bfloat16 would lose the small updates of the optimizer.

    Raises:
        ArgumentError: the model is there already, so that the options for loading it could only be ignored.
    """
    options = dict(cast("dict[str, Any]", config.model_init_kwargs or {}))
    if isinstance(model, str):
        set_seed(config.seed)  # what is missing in the weights is drawn
        if quantization is not None:
            options["quantization_config"] = quantization
        if options.get("dtype") not in (None, "auto") and isinstance(options["dtype"], str):
            dtype = getattr(torch, options["dtype"].removeprefix("torch."), None)
            if not isinstance(dtype, torch.dtype):
                raise ArgumentError("dtype", options["dtype"], "give a type of torch, such as float32 or bfloat16")
            options["dtype"] = dtype
        if "quantization_config" not in options:
            options.setdefault("dtype", torch.float32)
        options.setdefault("trust_remote_code", config.trust_remote_code)
        with found("model", model):
            loaded: nn.Module = AutoModelForCausalLM.from_pretrained(model, **options)
        return loaded
    for name, value in (("model_init_kwargs", options or None), ("quantization_config", quantization)):
        if value is not None:
            raise ArgumentError(name, value, "the model is loaded already; give its name instead, or leave this out")
    return cast(nn.Module, model)


@contextlib.contextmanager
def found(argument: str, name: str) -> Iterator[None]:
    """Say which argument names a folder or a repository that isn't there."""
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        raise ArgumentError(argument, name, f"it can't be loaded: {error}") from error


def load_tokenizer(processing_class: Any, model: Any, config: SFTConfig) -> Any:
    """The processing class, or the tokenizer that comes with the model.

    Raises:
        ArgumentError: there is none.
    """
    if processing_class is not None:
        return processing_class
    name = model if isinstance(model, str) else getattr(getattr(model, "config", None), "_name_or_path", "")
    options = cast("dict[str, Any]", config.model_init_kwargs or {})
    if not name:
        raise ArgumentError("processing_class", None, "the model doesn't say where its tokenizer is; give one")
    with found("model", name):
        return AutoTokenizer.from_pretrained(
            name, revision=options.get("revision"), trust_remote_code=config.trust_remote_code
        )


def text_tokenizer(processing_class: Any) -> PreTrainedTokenizerBase:
    """The tokenizer, also where it is part of a processor.

    Raises:
        ArgumentError: it isn't one of transformers.
    """
    tokenizer = getattr(processing_class, "tokenizer", processing_class)
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ArgumentError("processing_class", type(processing_class).__name__, "give a tokenizer of transformers")
    return tokenizer


def apply_tokens(tokenizer: PreTrainedTokenizerBase, model: Any, config: SFTConfig) -> None:
    """Make tokenizer and model agree on the EOS and pad tokens that the config names, and on a chat template."""
    if config.chat_template_path is not None:
        apply_template(tokenizer, model, config.chat_template_path)
    for name in ("eos_token", "pad_token"):
        token = getattr(config, name)
        if token is None:
            continue
        if token not in tokenizer.get_vocab():
            raise ArgumentError(name, token, "the tokenizer doesn't have this token; name one of its vocabulary")
        setattr(tokenizer, name, token)
    if config.eos_token is not None:
        model.config.get_text_config().eos_token_id = tokenizer.eos_token_id
        stops = model.generation_config.eos_token_id
        stops = [] if stops is None else [stops] if isinstance(stops, int) else list(stops)
        if tokenizer.eos_token_id not in stops:
            model.generation_config.eos_token_id = [tokenizer.eos_token_id, *stops]
    if getattr(model.config, "pad_token_id", 0) is None:
        model.config.pad_token_id = tokenizer.pad_token_id


def apply_template(tokenizer: PreTrainedTokenizerBase, model: Any, path: str) -> None:
    """Take a chat template from a file, or with the tokens that it needs from another tokenizer."""
    if path.endswith((".jinja", ".j2")):
        if not Path(path).is_file():
            raise ArgumentError("chat_template_path", path, "no such file")
        tokenizer.chat_template = Path(path).read_text(encoding="utf-8")
        return
    with found("chat_template_path", path):
        source = AutoTokenizer.from_pretrained(path)
    if source.chat_template is None:
        raise ArgumentError("chat_template_path", path, "that tokenizer has no chat template")
    tokenizer.chat_template = source.chat_template
    new = [token for token in source.added_tokens_decoder.values() if str(token) not in tokenizer.get_vocab()]
    tokenizer.add_tokens(new)
    tokenizer.eos_token = source.eos_token
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer))


def apply_router_loss(model: Any, coefficient: float | None) -> None:
    """Set the weight of a mixture of experts' load-balancing loss.

    Raises:
        ArgumentError: the model has no such loss.
    """
    text = model.config.get_text_config()
    if coefficient is None:
        return
    if not hasattr(text, "output_router_logits"):
        raise ArgumentError(
            "router_aux_loss_coef", coefficient, f"{type(model).__name__} is no mixture of experts; leave it unset"
        )
    text.output_router_logits = coefficient != 0.0
    text.router_aux_loss_coef = coefficient
    for module in model.modules():  # the models keep a copy of the weight
        if hasattr(module, "router_aux_loss_coef"):
            module.router_aux_loss_coef = coefficient


def separate_examples(model: Any, config: SFTConfig) -> Isolation | None:
    """Keep the examples of packed batches apart, where there will be any.

    Raises:
        ArgumentError: the model can't.
    """
    if not (config.packing or config.packs_eval or config.padding_free):
        return None
    base = model.get_base_model() if is_adapted(model) else model
    if uses_flash(base) and config.device.type == "cuda":
        model.to(config.device)  # its kernels run nowhere else
    argument = "padding_free" if config.padding_free and not config.packing else "packing"
    return isolate(base, argument)


def uses_flash(model: nn.Module) -> bool:
    """Whether a model computes attention with one of the FlashAttention kernels."""
    return "flash" in attention_of(model)


def make_collator(tokenizer: PreTrainedTokenizerBase, model: Any, config: SFTConfig) -> CausalCollator:
    """The collator for a config; where there is no pad token any other fills in, since padding is masked."""
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    flash = uses_flash(model)
    return CausalCollator(
        pad_token_id=pad if pad is not None else eos if eos is not None else 0,
        padding_free=config.padding_free,
        flatten=flash,
        boundaries=flash,
        pad_to_multiple_of=cast("int | None", config.pad_to_multiple_of),
    )


def make_preparation(
    tokenizer: PreTrainedTokenizerBase, config: SFTConfig, formatting_func: FormattingFunc | None
) -> Preparation:
    """How the data sets of a config are prepared.

    Raises:
        ArgumentError: a formatting function makes text, in which no completion can be told apart.
    """
    if formatting_func is not None and not callable(formatting_func):
        raise ArgumentError("formatting_func", formatting_func, "give a function of one row")
    if formatting_func is not None and config.completion_only_loss:
        raise ArgumentError(
            "completion_only_loss", True, "a formatting_func joins prompt and completion; leave one of the two out"
        )
    recipe = Recipe(
        tokenizer=tokenizer,
        format=Format.TEXT,
        text_field=config.dataset_text_field,
        assistant_only=config.assistant_only_loss,
        max_length=config.max_length,
        truncation_mode=config.truncation_mode,  # type: ignore[arg-type]  # checked by the config
    )
    return Preparation(
        recipe=recipe,
        completion_only=config.completion_only_loss,
        formatting_func=formatting_func,
        strategy=cast(Strategy, config.packing_strategy),
        num_proc=config.dataset_num_proc,
        shuffle_seed=config.seed if config.shuffle_dataset else None,
    )


def check_prepared(dataset: Any, name: str) -> Any:
    """A data set whose preparation is skipped, after a look at whether it can be trained on."""
    row = next(iter(dataset), None)
    if row is None or "input_ids" not in row:
        raise ArgumentError(name, row and sorted(row), "with skip_prepare_dataset it must have an 'input_ids' column")
    return dataset


def old_tokenizer(processing_class: Any, keywords: dict[str, Any]) -> Any:
    """The processing class, where it came as `tokenizer=`."""
    if "tokenizer" not in keywords:
        return processing_class
    if processing_class is not None:
        raise ArgumentError("tokenizer", type(keywords["tokenizer"]).__name__, "give processing_class alone")
    deprecated("SFTTrainer(tokenizer=…)", "SFTTrainer(processing_class=…)")
    return keywords.pop("tokenizer")


class ModelMaker:
    """Makes a loaded model ready: tokens, router loss, adapters, and packed examples kept apart."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, config: SFTConfig, peft_config: PeftConfig | None, notes: list[str]
    ) -> None:
        self.tokenizer = tokenizer
        self.notes = notes
        self.config = config
        self.peft_config = peft_config

    def __call__(self, model: Any) -> Any:
        """The same model, or the one that wraps it."""
        if not isinstance(model, nn.Module):
            raise ArgumentError("model", type(model).__name__, "give a model of transformers, or its name")
        check_causal(model)
        apply_tokens(self.tokenizer, model, self.config)
        apply_router_loss(model, self.config.router_aux_loss_coef)
        set_seed(self.config.seed)  # adapters are drawn
        model = with_adapters(model, self.peft_config, self.config.gradient_checkpointing)
        apart = separate_examples(model, self.config)
        if apart is not None:
            by = "masks in the layers" if apart.in_layers else "position ids"
            self.notes.append(f"packed examples are kept apart by {by}")
        return model

    def around(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """A function that makes models, followed by this."""

        @functools.wraps(make)
        def made(*trial: Any) -> Any:
            return self(make(*trial))

        return made


def prepare(dataset: Any, name: str, preparation: Preparation, config: SFTConfig, packing: bool) -> Any:
    """A data set, or each of a dict of them, ready for the collator; None stays None."""
    if dataset is None:
        return None
    if isinstance(dataset, dict) and name == "train":
        raise ArgumentError("train_dataset", sorted(dataset), "give one of these, such as dataset['train']")
    if isinstance(dataset, dict):
        return {key: prepare(each, key, preparation, config, packing) for key, each in dataset.items()}
    if isinstance(dataset, list) and all(isinstance(row, dict) for row in dataset):
        try:
            dataset = Dataset.from_list(dataset)
        except pa.ArrowException as error:
            raise ArgumentError(f"{name}_dataset", "list", f"its rows don't fit one table: {error}") from error
    if config.skips_preparation:
        return check_prepared(dataset, f"{name}_dataset")
    if not isinstance(dataset, Dataset | IterableDataset):
        raise ArgumentError(
            f"{name}_dataset",
            type(dataset).__name__,
            "give a Dataset or IterableDataset of datasets or a list of dicts, or set "
            "dataset_kwargs={'skip_prepare_dataset': True} for rows that are tokenized",
        )
    with config.main_process_first(desc=f"tokenizing the {name} data set"):
        return preparation(dataset, name, packing)
