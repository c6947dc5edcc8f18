"""`Trainer`: what users build, call and override. What has a better home is called from there."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Sampler

from . import (
    after_step,
    construction,
    data,
    evaluation,
    loading,
    optimizers,
    schedules,
    seeding,
    step,
    training,
)
from .arguments import TrainingArguments, validate_with_data
from .callbacks.handler import CallbackHandler
from .checkpointing import Checkpointing
from .engine import Engine
from .logs import Logger, configure_logging, get_logger
from .loss import LossCall, LossRule, ModelFacts
from .memory import MemoryMeter
from .outputs import EvalLoopOutput, EvalPrediction, PredictionOutput, TrainOutput
from .publishing import Publishing
from .sampling import ResumableSampler
from .state import TrainerControl, TrainerState

logger: Logger = get_logger(__name__)
Optimizers = tuple[torch.optim.Optimizer | None, Any]


class Trainer(Publishing):
    """Trains and evaluates a model.

    Args:
        model: Any module whose `forward` takes the data's columns and returns a loss (a dict with "loss", or a
            tuple whose first item it is), unless `compute_loss` is overridden.
        args: The arguments; by default those of `TrainingArguments("tmp_trainer")`.
        data_collator: Makes a batch of a list of rows; by default pads with the processing class if it can,
            else stacks.
        train_dataset: Rows to train on, map-style or iterable.
        eval_dataset: Rows to evaluate on, or a dict of such data sets by name.
        processing_class: Tokenizer, feature extractor, image processor or processor; saved with the model.
        model_init: Makes the model at each `train()` instead, optionally from a search trial.
        compute_loss_func: `f(outputs, labels, num_items_in_batch=)`, a loss divided by that count.
        compute_metrics: `f(EvalPrediction)`, a dict of numbers.
        callbacks: One or a list, classes or instances.
        optimizers: An optimizer and a scheduler of your own, either may be None.
        optimizer_cls_and_kwargs: A class of optimizer and its settings, instead of `args.optim`.
        preprocess_logits_for_metrics: `f(logits, labels)`, what to keep of each batch's outputs.
        **old_spellings: `tokenizer=` and `callback=`, with one deprecation line each.

    Raises:
        ArgumentError: arguments do not fit each other, the model or the data; says which, and the fix.
    """

    is_in_train: bool = False
    saw_batch: bool = False
    tokens_before: int = 0
    loss_is_scaled_for_ga: bool | None = None
    hp_name: Callable[[Any], str] | None = None

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        args: TrainingArguments | None = None,
        data_collator: data.Collator | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        model_init: Callable[..., torch.nn.Module] | None = None,
        compute_loss_func: Callable[..., torch.Tensor] | None = None,
        compute_metrics: Callable[[EvalPrediction], dict[str, Any]] | None = None,
        callbacks: Any = None,
        optimizers: Optimizers = (None, None),
        optimizer_cls_and_kwargs: tuple[type[torch.optim.Optimizer], dict[str, Any]] | None = None,
        preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None = None,
        **old_spellings: Any,
    ) -> None:
        processing_class, callbacks = construction.old_spellings(processing_class, callbacks, old_spellings)
        self.args: TrainingArguments = construction.own_arguments(args)
        configure_logging(self.args)
        seeding.apply(self.args.seed, self.args.full_determinism)
        construction.check_model(model, model_init)
        construction.check_optimizers(self.args, model_init, optimizers, optimizer_cls_and_kwargs)
        construction.check_data(train_dataset, eval_dataset, data_collator)
        validate_with_data(self.args, has_eval_dataset=eval_dataset is not None, has_metrics=bool(compute_metrics))
        self.model_init = model_init
        self.engine: Engine = construction.choose_engine(self.args)
        self.memory: MemoryMeter = MemoryMeter(self.args.skip_memory_metrics, self.engine.device)
        self.model: torch.nn.Module = self.call_model_init() if model is None else model
        self.model_wrapped: torch.nn.Module = self.model
        construction.place_model(self.model, self.args, self.engine)
        self.train_dataset = train_dataset
        self.eval_dataset = eval_dataset
        self.processing_class = processing_class
        self.data_collator: data.Collator = data.choose_collator(data_collator, processing_class)
        self.compute_loss_func = compute_loss_func
        self.compute_metrics = compute_metrics
        self.preprocess_logits_for_metrics = preprocess_logits_for_metrics
        self.given_optimizers = optimizers
        self.optimizer: torch.optim.Optimizer | None = optimizers[0]
        self.lr_scheduler: Any = optimizers[1]
        self.optimizer_cls_and_kwargs = optimizer_cls_and_kwargs
        self.train_batch_size: int = self.args.train_batch_size
        self.loss_rule: LossRule = self._read_model()
        is_own = type(self).compute_loss is Trainer.compute_loss
        self.loss_call: LossCall = LossCall.of(self.compute_loss, is_own=is_own)
        self.control: TrainerControl = TrainerControl()
        self.checkpointing: Checkpointing = Checkpointing(self)
        self._introduce_callbacks(callbacks)

    def _introduce_callbacks(self, callbacks: Any) -> None:
        self.state: TrainerState = TrainerState(
            is_local_process_zero=self.is_local_process_zero(), is_world_process_zero=self.is_world_process_zero()
        )
        everyone = construction.all_callbacks(self.args, callbacks)
        self.callback_handler: CallbackHandler = CallbackHandler(everyone, self.args, self.state, self.control)
        self.callback_handler.references.update(model=self.model, processing_class=self.processing_class)
        if self.args.should_save:
            construction.make_folder(self.args.folder)
        self.callback_handler.fire("on_init_end")

    def _read_model(self) -> LossRule:
        inner = construction.base_model(self.model)
        facts = ModelFacts.of(inner, self.args.label_names)
        self.label_names: list[str] = list(facts.label_names)
        self.main_input_name: str = getattr(inner, "main_input_name", "input_ids")
        smoothing = self.args.label_smoothing_factor
        return LossRule(facts, smoothing, self.compute_loss_func, self.args.count_predicted_tokens)

    # Data

    def get_model_columns(self) -> list[str]:
        """Names of the columns that reach the model; the others are left out (`remove_unused_columns`)."""
        parameters = inspect.signature(construction.base_model(self.model).forward).parameters
        return [*parameters, *(name for name in (*data.LABEL_COLUMNS, *self.label_names) if name not in parameters)]

    def get_train_sampler(self) -> Sampler[int] | None:
        """Order of the training rows over all processes; None for an iterable data set."""
        return data.train_sampler(self.train_dataset, self.args, self.train_batch_size, self.main_input_name)

    def get_eval_sampler(self, eval_dataset: Any) -> Sampler[int] | None:
        """Order of the rows of an evaluation over all processes; None for an iterable data set."""
        return None if loading.is_iterable_only(eval_dataset) else ResumableSampler(eval_dataset, shuffle=False)

    def get_train_dataloader(self) -> Any:
        """The loader that `train()` reads; overriding it may return any iterable of batches."""
        if self.train_dataset is None:
            raise construction.missing("train_dataset", "give the Trainer a training data set")
        return self._loader(self.train_dataset, "train_dataset", self.train_batch_size, self.get_train_sampler, True)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The loader that `evaluate()` reads, of a data set or of the name of one of `eval_dataset`'s."""
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(dataset, str):
            dataset = construction.named_dataset(self.eval_dataset, dataset)
        if dataset is None:
            raise construction.missing("eval_dataset", "give the Trainer, or evaluate(), an evaluation data set")
        return self._loader(
            dataset, "eval_dataset", self.args.eval_batch_size, lambda: self.get_eval_sampler(dataset), False
        )

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """The loader that `predict()` reads."""
        return self._loader(
            test_dataset, "test_dataset", self.args.eval_batch_size, lambda: self.get_eval_sampler(test_dataset), False
        )

    def _loader(
        self, dataset: Any, name: str, batch_size: int, sampler: Callable[[], Sampler[int] | None], training: bool
    ) -> Any:
        collator = self.data_collator
        if self.args.remove_unused_columns:
            model_name = type(construction.base_model(self.model)).__name__
            dataset, collator = data.keep_columns(dataset, collator, self.get_model_columns(), name, model_name)
        return data.build_loader(
            dataset, sampler(), batch_size, collator, self.args, training=training, engine=self.engine
        )

    def num_examples(self, dataloader: Any) -> int | None:
        """Rows of a loader over all processes; None if not known."""
        return data.num_examples(dataloader)

    # Optimizer and schedule

    def get_decay_parameter_names(self, model: torch.nn.Module) -> list[str]:
        """Names of the parameters that weight decay applies to."""
        return optimizers.decay_parameter_names(model)

    def create_optimizer_and_scheduler(self, num_training_steps: int) -> None:
        """Make both, by the two methods below."""
        self.create_optimizer()
        self.create_scheduler(num_training_steps, self.optimizer)

    def create_optimizer(self) -> torch.optim.Optimizer:
        """Make `self.optimizer`, unless there is one."""
        if self.optimizer is None:
            model = self.model_wrapped
            groups = optimizers.decay_groups(model, self.get_decay_parameter_names(model), self.args.weight_decay)
            if self.optimizer_cls_and_kwargs is not None:
                cls, settings = self.optimizer_cls_and_kwargs
                self.optimizer = cls(groups, **settings)
            else:
                self.optimizer = optimizers.build(self.args, model, groups)
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """Make `self.lr_scheduler`, unless there is one, for a run of so many steps."""
        if self.lr_scheduler is None:
            args = self.args
            self.lr_scheduler = schedules.create(
                str(args.lr_scheduler_type),
                self.create_optimizer() if optimizer is None else optimizer,
                args.get_warmup_steps(num_training_steps),
                num_training_steps,
                args.lr_scheduler_kwargs if isinstance(args.lr_scheduler_kwargs, dict) else None,
            )
        return self.lr_scheduler

    # Training

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
        **old_spellings: Any,
    ) -> TrainOutput:
        """Train; each call starts anew unless it resumes.

        Args:
            resume_from_checkpoint: A checkpoint folder, or True for the newest valid one of `output_dir`.
            trial: A trial of a hyper-parameter search.
            ignore_keys_for_eval: Model outputs that evaluations leave out.
            **old_spellings: `model_path=`.

        Returns:
            Steps done, the mean training loss, and metrics.
        """
        resume = construction.old_resume(resume_from_checkpoint, old_spellings)
        return training.train(self, resume, trial, ignore_keys_for_eval)

    def call_model_init(self, trial: Any = None) -> torch.nn.Module:
        """A new model from `model_init`, which may take a trial."""
        return construction.call_model_init(self.model_init, trial)

    def renew(self, trial: Any = None) -> None:
        """Forget the last run: a new model where there is `model_init`, a new optimizer, schedule and control."""
        if self.model_init is not None:
            self.model = self.model_wrapped = self.call_model_init(trial)
            construction.place_model(self.model, self.args, self.engine)
            self.loss_rule = self._read_model()
        self.optimizer, self.lr_scheduler = self.given_optimizers

    def training_step(
        self, model: torch.nn.Module, inputs: Any, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Forward and backward over one micro-batch; returns its share of the step's loss, detached.

        Args:
            model: The wrapped model.
            inputs: A batch as the loader gives it.
            num_items_in_batch: Targets of the whole step over all processes; None where a step is one batch.
        """
        return step.training_step(self, model, inputs, num_items_in_batch)

    def count_items(self, window: list[Any]) -> torch.Tensor | int | None:
        """Targets in the micro-batches of one step, over all processes; None where nobody needs to know."""
        return step.count_items(self, window)

    def prepare_inputs(self, inputs: Any) -> Any:
        """The batch on the model's device."""
        return self.engine.to_device(inputs)

    def compute_loss_context_manager(self) -> contextlib.AbstractContextManager[Any]:
        """Around the forward pass: the precision of `fp16` or `bf16`."""
        return self.engine.autocast()

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """The loss of a batch, and the outputs if asked for.

        Args:
            model: The wrapped model.
            inputs: A batch on the device.
            return_outputs: Return (loss, outputs).
            num_items_in_batch: If given, the loss is this batch's share of a mean over so many targets, else
                the batch's own mean. An override without this argument, or one that does not look at it,
                returns the mean and is scaled by its share of the targets.
        """
        loss, outputs = self.loss_rule.compute(model, inputs, num_items_in_batch)
        return (loss, outputs) if return_outputs else loss

    def evaluation_loss(self, model: torch.nn.Module, inputs: Any) -> tuple[torch.Tensor, Any]:
        """The mean loss of a batch and its outputs, by `compute_loss`."""
        return step.evaluation_loss(self, model, inputs)

    # Evaluation

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Evaluate on `eval_dataset`, or on the Trainer's; of a dict, each by its name.

        Returns:
            The loss and the metrics, each name beginning with the prefix.
        """
        return evaluation.evaluate(self, eval_dataset, ignore_keys, metric_key_prefix)

    def predict(
        self, test_dataset: Any, ignore_keys: list[str] | None = None, metric_key_prefix: str = "test"
    ) -> PredictionOutput:
        """Outputs, labels and metrics on a data set, with or without labels."""
        return evaluation.predict(self, test_dataset, ignore_keys, metric_key_prefix)

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """One pass of `evaluate` or `predict` over a loader."""
        return evaluation.evaluation_loop(
            self, dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
        )

    def prediction_step(
        self, model: torch.nn.Module, inputs: Any, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> evaluation.Step:
        """Loss, outputs and labels of one batch; each may be None."""
        return evaluation.prediction_step(self, model, inputs, prediction_loss_only, ignore_keys)

    # Logs, files, callbacks

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add to the log history, and tell the callbacks.

        Args:
            logs: Names and numbers; `epoch` is added.
            start_time: When training began, for the tokens a second.
        """
        after_step.add_progress(self, logs, start_time)
        self.state.log_history.append({**logs, "step": self.state.global_step})
        self.callback_handler.fire("on_log", logs=logs)

    def get_checkpoint_files(self) -> dict[str, Callable[[Path], object]]:
        """What a checkpoint holds besides states: name to a function that writes its files into a folder."""
        return {"model": self.checkpointing.model_writer(is_own=type(self).save_model is Publishing.save_model)}

    def add_callback(self, callback: Any) -> None:
        """Add a callback, class or instance."""
        self.callback_handler.add_callback(callback)

    def pop_callback(self, callback: Any) -> Any | None:
        """Remove and return a callback, by class or instance."""
        return self.callback_handler.pop_callback(callback)

    def remove_callback(self, callback: Any) -> None:
        """Remove a callback, by class or instance."""
        self.callback_handler.pop_callback(callback)

    def is_local_process_zero(self) -> bool:
        """Whether this is the first process of its machine."""
        return self.args.local_process_index == 0
