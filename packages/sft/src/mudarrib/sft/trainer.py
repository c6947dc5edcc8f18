"""`SFTTrainer`: supervised fine-tuning of causal language models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from datasets import Dataset, IterableDataset
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mudarrib.core_loop import Trainer, TrainingArguments

from . import checks, setup
from .config import SFTConfig
from .formats import FormattingFunc
from .lora import merged
from .metrics import TokenMeter, dft_loss
from .prepare import Preparation

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import ProcessorMixin
    from transformers.utils.quantization_config import QuantizationConfigMixin

Collator = Callable[[Sequence[Any]], dict[str, Any]]


class SFTTrainer(Trainer):
    """Fine-tunes a causal language model on text, prompts and completions, messages or tokens.

    Args:
        model: A model of transformers or peft, or the name or folder of one.
        args: An `SFTConfig`, or plain `TrainingArguments`; by default a config with the model's name.
        data_collator: Makes a batch of rows; by default `CausalCollator`.
        train_dataset: A data set of `datasets`, map-style or streaming, or a list of dicts.
        eval_dataset: Another such data set, or a dict of them by name.
        processing_class: Tokenizer, or a processor that has one; by default the one that comes with the model.
        compute_loss_func: As in `Trainer`.
        compute_metrics: As in `Trainer`.
        callbacks: As in `Trainer`.
        optimizers: As in `Trainer`.
        optimizer_cls_and_kwargs: As in `Trainer`.
        preprocess_logits_for_metrics: As in `Trainer`.
        quantization_config: How to quantize a model that is given by name.
        peft_config: Of the adapters to train instead of the whole model.
        formatting_func: Makes of each row a string, messages, or a dict of columns.
        **others: `model_init=` of `Trainer`, and keywords of older scripts (`tokenizer`, `dataset_text_field`,
            `max_seq_length`, `packing` …), each with a deprecation line.

    Raises:
        ArgumentError: something can't work; names the argument, the value and the fix, before training starts.
    """

    args: SFTConfig

    def __init__(
        self,
        model: PreTrainedModel | nn.Module | str | None = None,
        args: TrainingArguments | None = None,
        data_collator: Collator | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: PreTrainedTokenizerBase | ProcessorMixin | None = None,
        compute_loss_func: Callable[..., torch.Tensor] | None = None,
        compute_metrics: Callable[[Any], dict[str, Any]] | None = None,
        callbacks: Any = None,
        optimizers: tuple[Any, Any] = (None, None),
        optimizer_cls_and_kwargs: tuple[type[torch.optim.Optimizer], dict[str, Any]] | None = None,
        preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None = None,
        quantization_config: QuantizationConfigMixin | None = None,
        peft_config: PeftConfig | None = None,
        formatting_func: FormattingFunc | None = None,
        **others: Any,
    ) -> None:
        config = setup.resolve_config(args, model, others)
        processing_class = setup.load_tokenizer(setup.old_tokenizer(processing_class, others), model, config)
        self.tokenizer: PreTrainedTokenizerBase = setup.text_tokenizer(processing_class)
        self.preparation: Preparation = setup.make_preparation(self.tokenizer, config, formatting_func)
        ready = setup.ModelMaker(self.tokenizer, config, peft_config, self.preparation.notes)
        if others.get("model_init") is not None:
            others["model_init"] = ready.around(others["model_init"])
        else:
            model = ready(setup.load_model(model, config, quantization_config))
        self.token_meter: TokenMeter = TokenMeter()
        super().__init__(
            model=cast("nn.Module | None", model),  # by now it is loaded
            args=config,
            data_collator=data_collator or setup.make_collator(self.tokenizer, model, config),
            train_dataset=setup.prepare(train_dataset, "train", self.preparation, config, config.packing),
            eval_dataset=setup.prepare(eval_dataset, "eval", self.preparation, config, config.packs_eval),
            processing_class=processing_class,
            compute_loss_func=compute_loss_func,
            compute_metrics=compute_metrics,
            callbacks=callbacks,
            optimizers=optimizers,
            optimizer_cls_and_kwargs=optimizer_cls_and_kwargs,
            preprocess_logits_for_metrics=preprocess_logits_for_metrics,
            **others,
        )
        self._check(data_collator)
        self.add_callback(self.token_meter)

    def _check(self, data_collator: Collator | None) -> None:
        """Refuse what would fail in training, or train on something else than was meant; say what data were taken for.

        Args:
            data_collator: The user's; None for the trainer's own.

        Raises:
            ArgumentError: names the argument, the value and the fix.
        """
        if self.train_dataset is not None:
            checks.check_trainable(self.model, self.args)
        for name, dataset in (("train", self.train_dataset), ("eval", self.eval_dataset)):
            checks.check_fits(dataset, name, self.model)
            checks.check_collator(data_collator, dataset)
        self.preparation.tell()

    def get_model_columns(self) -> list[str]:
        """The model's columns, and the lengths of the examples in a packed row, which the collator takes."""
        return [*super().get_model_columns(), "labels", "seq_lengths"]

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The loader of an evaluation; a data set that is given here is prepared as those at the start."""
        if isinstance(eval_dataset, Dataset | IterableDataset | list):
            eval_dataset = setup.prepare(eval_dataset, "eval", self.preparation, self.args, self.args.packs_eval)
        return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """The loader of a prediction; rows are prepared but never packed, so that each keeps its place."""
        if isinstance(test_dataset, Dataset | IterableDataset | list):
            test_dataset = setup.prepare(test_dataset, "test", self.preparation, self.args, packing=False)
        return super().get_test_dataloader(test_dataset)

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """The loss of a batch, by `loss_type`, counted for the metrics; see `Trainer.compute_loss`."""
        labels = inputs.get("labels")
        if self.args.loss_type == "dft" and labels is not None:
            outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
            loss = dft_loss(outputs.logits, labels, num_items_in_batch)
        else:
            loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
            loss = loss - self.router_loss_excess(outputs, num_items_in_batch)
        if labels is not None and outputs["logits"].shape[:2] == labels.shape:
            self.token_meter.add(outputs["logits"], labels, inputs)
        return (loss, outputs) if return_outputs else loss

    def router_loss_excess(self, outputs: Any, count: torch.Tensor | int | None) -> torch.Tensor | float:
        """How much of a mixture of experts' balancing loss a batch has too much: it is a mean, not a share.

        The models add it whole to a loss that is divided by the targets of all micro-batches of a step.
        """
        aux = outputs.get("aux_loss") if hasattr(outputs, "get") else None
        if aux is None or count is None or not self.loss_rule.divides_by_count:
            return 0.0
        world = self.engine.world_size if self.args.average_tokens_across_devices else 1
        n_batches = self.args.gradient_accumulation_steps * world if self.model.training else 1
        config: Any = self.engine.unwrap(self.model).config
        excess: torch.Tensor = (1 - 1 / n_batches) * config.router_aux_loss_coef * aux.to(outputs["loss"].device)
        return excess

    def training_step(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        """Forward and backward over a batch, with the activations in CPU memory if `activation_offloading` says so."""
        offloading: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if self.args.activation_offloading:
            offloading = torch.autograd.graph.save_on_cpu(pin_memory=self.args.device.type == "cuda")
        with offloading:
            return super().training_step(model, inputs, num_items_in_batch)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Metrics of an evaluation; what training had counted so far stays apart from it."""
        counted, self.token_meter.sums = self.token_meter.sums, None
        try:
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        finally:
            self.token_meter.sums = counted

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log with token accuracy, entropy and share of padding and, in training, tokens seen and their rate."""
        prefix = next((name.removesuffix("loss") for name in logs if name.endswith("_loss")), "")
        if prefix != "train_":  # the summary of a run has its own numbers
            metrics = self.token_meter.drain(self.engine.sum, training=not prefix)
            logs.update({f"{prefix}{name}": value for name, value in metrics.items()})
        super().log(logs, start_time)

    def save_merged(self, output_dir: str) -> None:
        """Write the whole model, adapters merged into its weights, and its tokenizer; training may go on after it."""
        if self.args.should_save:
            whole: Any = merged(self.engine.unwrap(self.model))
            whole.save_pretrained(Path(output_dir))
            self.tokenizer.save_pretrained(Path(output_dir))
