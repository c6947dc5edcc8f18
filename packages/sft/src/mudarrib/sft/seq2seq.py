"""`Seq2SeqTrainer`: a Trainer whose evaluation generates texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from transformers import DataCollatorForSeq2Seq, GenerationConfig

from mudarrib.core_loop import ArgumentError, PredictionOutput, Trainer, TrainingArguments

from .checks import check_fits
from .seq2seq_arguments import Seq2SeqTrainingArguments

DEFAULT_NEW_TOKENS = 20  # what `generate` does where nothing is said
NOT_FOR_GENERATION = ("labels", "decoder_input_ids", "decoder_attention_mask", "decoder_inputs_embeds")


class Seq2SeqTrainer(Trainer):
    """Trains encoder-decoder models for translation, summarisation and the like.

    With `predict_with_generate`, `evaluate` and `predict` generate, and `compute_metrics` gets token ids: predictions
    padded with the pad token, labels with -100.

    Args:
        model: A model that can `generate`.
        args: `Seq2SeqTrainingArguments`, or plain `TrainingArguments`, with which nothing is generated.
        data_collator: By default `DataCollatorForSeq2Seq`, which pads inputs and labels.
        train_dataset: As in `Trainer`; with `input_ids` and `labels`.
        eval_dataset: As in `Trainer`.
        processing_class: The tokenizer.
        **others: As in `Trainer`.

    Raises:
        ArgumentError: the generation config can't be used; and as in `Trainer`.
    """

    def __init__(
        self,
        model: Any = None,
        args: TrainingArguments | None = None,
        data_collator: Callable[..., Any] | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        **others: Any,
    ) -> None:
        args = Seq2SeqTrainingArguments("tmp_trainer") if args is None else args
        tokenizer = others.get("tokenizer") if processing_class is None else processing_class
        self.own_collator: bool = data_collator is None
        if data_collator is None and hasattr(tokenizer, "pad"):
            data_collator = DataCollatorForSeq2Seq(tokenizer, model=model)
        self.generation_options: dict[str, Any] = {}
        super().__init__(model, args, data_collator, train_dataset, eval_dataset, processing_class, **others)
        config = getattr(args, "generation_config", None)
        if config is not None:
            cast(Any, self.model).generation_config = load_generation_config(config)
        self._check()

    def _check(self) -> None:
        """Refuse a model that can't generate, and data without labels or with tokens that the model doesn't know.

        Raises:
            ArgumentError: one of these.
        """
        if getattr(self.args, "predict_with_generate", False) and not hasattr(self.model, "generate"):
            raise ArgumentError("predict_with_generate", True, f"{type(self.model).__name__} can't generate")
        for name, dataset in (("train", self.train_dataset), ("eval", self.eval_dataset)):
            check_fits(dataset, name, self.model, ("input_ids", "labels"))
        rows = self.train_dataset
        plain = isinstance(rows, Dataset) and rows.format["type"] != "custom" and self.args.label_names is None
        if plain and self.own_collator and not {"labels", "label"} & set(rows.column_names):
            raise ArgumentError("train_dataset", rows.column_names, "it needs a 'labels' column: the tokens to write")

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **generation: Any,
    ) -> dict[str, float]:
        """Metrics of an evaluation; see `Trainer.evaluate`.

        Args:
            eval_dataset: As in `Trainer`.
            ignore_keys: As in `Trainer`.
            metric_key_prefix: As in `Trainer`.
            **generation: Options of `generate` for this call (`max_length`, `num_beams` …); they win over the
                arguments, which win over the model's generation config.
        """
        with self.generating(generation):
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)

    def predict(
        self,
        test_dataset: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
        **generation: Any,
    ) -> PredictionOutput:
        """Generated token ids, labels and metrics; options as in `evaluate`."""
        with self.generating(generation):
            return super().predict(test_dataset, ignore_keys, metric_key_prefix)

    @contextmanager
    def generating(self, options: dict[str, Any]) -> Iterator[None]:
        """Let generation follow some options, also in the evaluations that one of several data sets consists of."""
        before, self.generation_options = self.generation_options, {**self.generation_options, **options}
        try:
            yield
        finally:
            self.generation_options = before

    def prediction_step(
        self, model: torch.nn.Module, inputs: Any, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Any, Any, Any]:
        """Loss, generated tokens and labels of one batch; without generation as in `Trainer`."""
        if prediction_loss_only or not getattr(self.args, "predict_with_generate", False):
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        inputs = self.prepare_inputs(inputs)
        options = self.options()
        with torch.no_grad(), self.compute_loss_context_manager():
            asked = {name: value for name, value in inputs.items() if name not in NOT_FOR_GENERATION}
            generated = cast(Any, self.engine.unwrap(model)).generate(**asked, **options)
            labels = inputs.get("labels")  # the collator may give None
            loss = None if labels is None else self.evaluation_loss(model, dict(inputs))[0].mean().detach()
        return loss, self.padded(generated, options), labels

    def options(self) -> dict[str, Any]:
        """Options of `generate`: those of the call, else of the arguments, else of the model's generation config."""
        options = dict(self.generation_options)
        if options.get("max_length") is None and options.get("max_new_tokens") is None:
            options["max_length"] = getattr(self.args, "generation_max_length", None)
        if options.get("num_beams") is None:
            options["num_beams"] = getattr(self.args, "generation_num_beams", None)
        options.setdefault("synced_gpus", True if self.args.deepspeed or self.args.fsdp else None)
        for name in ("num_beams", "max_length", "max_new_tokens"):
            if options.get(name) is not None and options[name] < 1:
                raise ArgumentError(name, options[name], "give a whole number of at least 1")
        config = getattr(self.model, "generation_config", None)
        texts = options.get("num_return_sequences") or getattr(config, "num_return_sequences", None) or 1
        if texts > 1:
            raise ArgumentError("num_return_sequences", texts, "predictions stand beside labels, one for each row")
        return {name: value for name, value in options.items() if value is not None}

    def padded(self, generated: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        """Generated ids, padded to the longest that any batch can have, so that all batches are alike."""
        config = cast(Any, self.model).generation_config
        pad = config.pad_token_id
        pad = getattr(self.processing_class, "pad_token_id", None) if pad is None else pad
        new = options.get("max_new_tokens", None if "max_length" in options else config.max_new_tokens)
        longest = options.get("max_length", config.max_length) if new is None else new + 1
        longest = DEFAULT_NEW_TOKENS + 1 if longest is None else longest
        missing = longest - generated.shape[1]
        if missing <= 0:
            return generated
        if pad is None:
            raise ArgumentError(
                "processing_class", None, "generated texts differ in length; give a tokenizer with a pad token"
            )
        return torch.nn.functional.pad(generated, (0, missing), value=pad)


def load_generation_config(config: Any) -> GenerationConfig:
    """A generation config, from itself, a dict, a folder, a file or a name.

    Raises:
        ArgumentError: it can't be read, or its options contradict each other.
    """
    if isinstance(config, GenerationConfig):
        loaded = config
    elif isinstance(config, dict):
        loaded = GenerationConfig.from_dict(config)
    else:
        path = Path(config)
        folder, name = (path.parent, path.name) if path.is_file() else (config, None)
        try:
            loaded = GenerationConfig.from_pretrained(str(folder), **({"config_file_name": name} if name else {}))
        except OSError as error:
            raise ArgumentError("generation_config", str(config), f"no generation config is there: {error}") from error
    try:
        loaded.validate(strict=True)
    except ValueError as error:
        raise ArgumentError("generation_config", str(config), str(error)) from error
    return loaded
