"""Evaluation and prediction: one pass over a data set without training."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .errors import ArgumentError
from .gathering import NestedBuffer, nested_map
from .loading import BatchLoader, length
from .logs import Logger, get_logger
from .loss import as_tuple, n_rows
from .outputs import EvalLoopOutput, EvalPrediction, PredictionOutput

if TYPE_CHECKING:
    from .trainer import Trainer

logger: Logger = get_logger(__name__)
Step = tuple[Any, Any, Any]


def speed_metrics(split: str, started: float, **counts: float | None) -> dict[str, float]:
    """Seconds since `started`, and counts a second: `samples=`, `steps=`, `tokens=`."""
    runtime = time.time() - started
    metrics = {f"{split}_runtime": round(runtime, 4)}
    for name, count in counts.items():
        if count is not None and runtime > 0:
            metrics[f"{split}_{name}_per_second"] = round(count / runtime, 3)
    return metrics


def prediction_step(
    trainer: Trainer, model: torch.nn.Module, inputs: Any, prediction_loss_only: bool, ignore_keys: list[str] | None
) -> Step:
    """Loss, outputs and labels of a batch, on the device; see `Trainer.prediction_step`."""
    facts = trainer.loss_rule.facts
    names = facts.label_names
    is_mapping = isinstance(inputs, Mapping)
    has_labels = is_mapping and bool(names) and all(inputs.get(name) is not None for name in names)
    asked = inputs.get("return_loss") if is_mapping else None
    several = not is_mapping and isinstance(inputs, list | tuple) and len(inputs) > 1
    has_loss = has_labels or several or (not names and (facts.returns_loss_alone if asked is None else asked))
    inputs = trainer.prepare_inputs(inputs)
    if ignore_keys is None:
        config = getattr(trainer.model, "config", None)
        ignore_keys = list(getattr(config, "keys_to_ignore_at_inference", []))
    # The labels are read before the loss is computed, which may take them out of the inputs.
    labels: Any = tuple(inputs.get(name) for name in names) if has_loss and is_mapping else None
    with torch.no_grad(), trainer.compute_loss_context_manager():
        if has_loss:
            loss, outputs = trainer.evaluation_loss(model, inputs)
            loss = loss.detach().mean()
            drop = [*ignore_keys, "loss"]
        else:
            loss, drop = None, ignore_keys
            outputs = model(**inputs) if is_mapping else model(*as_tuple(inputs))
    if prediction_loss_only:
        return loss, None, None
    logits: Any = outputs
    if isinstance(outputs, Mapping):
        logits = tuple(value for name, value in outputs.items() if name not in drop)
    elif has_loss:
        logits = outputs[1:]
    return loss, detached(logits), detached(labels)


def detached(data: Any) -> Any:
    """The nested tensors outside the graph; a tuple of one is that one."""
    data = nested_map(lambda tensor: tensor.detach(), data)
    return data[0] if isinstance(data, tuple | list) and len(data) == 1 else data


class Losses:
    """The evaluation loss: the mean over all targets, as in training."""

    def __init__(self, nan_filter: bool) -> None:
        self.nan_filter = nan_filter
        self.losses: list[torch.Tensor | float] = []
        self.rows: list[int] = []
        self.targets: list[Any] = []

    def add(self, loss: torch.Tensor, rows: int, targets: Any) -> None:
        # Where nothing waits for a device, numbers are kept rather than tensors: a small one that stays between
        # the large ones that go keeps the allocator from giving their memory back.
        self.losses.append(loss.reshape(()) if loss.device.type != "cpu" else loss.item())
        self.rows.append(rows)
        on_cpu = isinstance(targets, torch.Tensor) and targets.device.type == "cpu"
        self.targets.append(targets.item() if on_cpu else targets)

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Loss, rows and targets of each batch."""
        losses = torch.stack([torch.as_tensor(loss).float().cpu() for loss in self.losses]).numpy()
        targets = torch.stack([torch.as_tensor(count).cpu() for count in self.targets]).numpy()
        return losses, np.asarray(self.rows), targets

    def mean(self, losses: np.ndarray, rows: np.ndarray, targets: np.ndarray) -> float:
        finite = np.isfinite(losses)
        if self.nan_filter and finite.any():
            losses, rows, targets = losses[finite], rows[finite], targets[finite]
        if targets.sum() == 0 or (targets * rows[0] == targets[0] * rows).all():
            # Each row has as many targets as any other: the mean over rows is the same number.
            return float(np.repeat(losses, rows).mean())
        return float(np.average(losses.astype(np.float64), weights=targets))


def evaluation_loop(
    trainer: Trainer,
    dataloader: Any,
    description: str,
    prediction_loss_only: bool | None,
    ignore_keys: list[str] | None,
    metric_key_prefix: str,
) -> EvalLoopOutput:
    """Run the model over a loader and compute the metrics; see `Trainer.evaluation_loop`."""
    args, engine = trainer.args, trainer.engine
    loss_only = args.prediction_loss_only if prediction_loss_only is None else prediction_loss_only
    model = model_for_evaluation(trainer)
    n_batches = length(dataloader)
    n_known = length(getattr(dataloader, "dataset", None)) if n_batches is not None else None
    rows_text = "unknown" if n_known is None else f"{n_known:,}"
    logger.info("%s: %s rows, batch size %s", description, rows_text, args.eval_batch_size)
    was_training = model.training
    set_mode(model, trainer.optimizer, training=False)
    trainer.callback_handler.references["eval_dataloader"] = dataloader
    keep = not args.batch_eval_metrics or description == "Prediction"
    buffers = {
        name: NestedBuffer(n_known, args.eval_do_concat_batches, args.eval_accumulation_steps)
        for name in ("predictions", "labels", "inputs")
    }
    losses = Losses(args.logging_nan_inf_filter)
    metrics: dict[str, Any] = {}
    n_seen = 0
    for number, inputs in enumerate(dataloader, 1):
        rows = own_rows(dataloader, number - 1, inputs, engine.world_size)
        targets = trainer.loss_rule.targets(inputs)
        loss, logits, labels = trainer.prediction_step(model, inputs, loss_only, ignore_keys=ignore_keys)
        kept_inputs = inputs.get(trainer.main_input_name) if "inputs" in args.include_for_metrics else None
        if logits is not None and trainer.preprocess_logits_for_metrics is not None:
            logits = trainer.preprocess_logits_for_metrics(logits, labels)
        if loss is not None:
            losses.add(loss, rows, targets)
        gathered = engine.gather({"predictions": logits, "labels": labels, "inputs": kept_inputs}, rows)
        n_seen += rows
        trainer.callback_handler.fire("on_prediction_step")
        if keep:
            for name, buffer in buffers.items():
                buffer.add(gathered[name])
        if args.batch_eval_metrics and trainer.compute_metrics is not None and gathered["labels"] is not None:
            metrics = batch_metrics(trainer, gathered, loss, is_last=number == n_batches)
    engine.end_evaluation(model)
    set_mode(model, trainer.optimizer, training=was_training)
    arrays = {name: buffer.result() for name, buffer in buffers.items()}
    return finish(trainer, arrays, losses, metrics, metric_key_prefix, engine.sum_rows(n_seen))


def model_for_evaluation(trainer: Trainer) -> torch.nn.Module:
    """The wrapped model, in the full half precision that the arguments may ask for outside of training."""
    args = trainer.args
    if not trainer.is_in_train and (args.fp16_full_eval or args.bf16_full_eval):
        trainer.model.to(dtype=torch.float16 if args.fp16_full_eval else torch.bfloat16)
    if trainer.model_wrapped is trainer.model:
        trainer.model_wrapped = trainer.engine.prepare_model(trainer.model, training=False)
    return trainer.model_wrapped


def own_rows(dataloader: Any, number: int, inputs: Any, world_size: int) -> int:
    """Rows of a batch that are this process's own; none where it repeats another's row to keep in step."""
    if world_size > 1 and isinstance(dataloader, BatchLoader):
        return dataloader.batches.own_rows(number)
    return n_rows(inputs)


def set_mode(model: torch.nn.Module, optimizer: Any, training: bool) -> None:
    if model.training != training:
        model.train(training)
    switch = getattr(optimizer, "train" if training else "eval", None)
    if callable(switch):
        switch()


def batch_metrics(trainer: Trainer, gathered: dict[str, Any], loss: Any, is_last: bool) -> dict[str, Any]:
    include = trainer.args.include_for_metrics
    compute: Any = trainer.compute_metrics
    prediction = EvalPrediction(
        gathered["predictions"],
        gathered["labels"],
        inputs=gathered["inputs"] if "inputs" in include else None,
        losses=loss if "loss" in include else None,
    )
    result: dict[str, Any] = compute(prediction, compute_result=is_last) or {}
    return result


def finish(
    trainer: Trainer, arrays: dict[str, Any], losses: Losses, metrics: dict[str, Any], prefix: str, n_rows: int
) -> EvalLoopOutput:
    """Metrics over everything that was gathered, with their prefix."""
    args = trainer.args
    predictions, labels = arrays["predictions"], arrays["labels"]
    mean_loss = each = None
    if losses.losses:
        each = trainer.engine.gather_losses(*losses.arrays())
        mean_loss = losses.mean(*each)
    compute = None if args.batch_eval_metrics else trainer.compute_metrics
    if compute is not None and predictions is not None and labels is not None:
        asked = each is not None and "loss" in args.include_for_metrics
        row_losses = np.repeat(each[0], each[1]) if each is not None and asked else None
        metrics = as_metrics(compute(EvalPrediction(predictions, labels, arrays["inputs"], row_losses)))
    named = {name: plain(value) for name, value in metrics.items()}
    if mean_loss is not None:
        named[f"{prefix}_loss"] = mean_loss
    named = {name if name.startswith(f"{prefix}_") else f"{prefix}_{name}": value for name, value in named.items()}
    return EvalLoopOutput(predictions, labels, named, n_rows)


def as_metrics(returned: Any) -> dict[str, Any]:
    """What `compute_metrics` returned, if it is a dict.

    Raises:
        ArgumentError: it is something else.
    """
    if not isinstance(returned, Mapping):
        raise ArgumentError("compute_metrics", returned, 'it must return a dict of numbers, such as {"accuracy": 0.9}')
    return dict(returned)


def plain(value: Any) -> Any:
    """A number of NumPy or torch as Python's own; arrays as lists."""
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return value.item() if getattr(value, "size", 0) == 1 or math.prod(value.shape) == 1 else value.tolist()
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return value


def evaluate(
    trainer: Trainer, eval_dataset: Any, ignore_keys: list[str] | None, metric_key_prefix: str
) -> dict[str, float]:
    """Metrics of an evaluation; see `Trainer.evaluate`."""
    chosen = trainer.eval_dataset if eval_dataset is None else eval_dataset
    if isinstance(chosen, dict):
        metrics: dict[str, float] = {}
        for name, dataset in chosen.items():
            metrics.update(
                trainer.evaluate(
                    eval_dataset=name if eval_dataset is None else dataset,
                    ignore_keys=ignore_keys,
                    metric_key_prefix=f"{metric_key_prefix}_{name}",
                )
            )
        return metrics
    dataloader = trainer.get_eval_dataloader(eval_dataset)
    started = time.time()
    output = trainer.evaluation_loop(
        dataloader,
        description="Evaluation",
        prediction_loss_only=True if trainer.compute_metrics is None else None,
        ignore_keys=ignore_keys,
        metric_key_prefix=metric_key_prefix,
    )
    add_speed(trainer, output, metric_key_prefix, started)
    trainer.log(output.metrics)
    trainer.callback_handler.fire("on_evaluate", metrics=output.metrics)
    return output.metrics


def add_speed(trainer: Trainer, output: EvalLoopOutput, prefix: str, started: float) -> None:
    steps = math.ceil(output.num_samples / (trainer.args.eval_batch_size * trainer.engine.world_size))
    output.metrics.update(speed_metrics(prefix, started, samples=output.num_samples, steps=steps))


def predict(
    trainer: Trainer, test_dataset: Any, ignore_keys: list[str] | None, metric_key_prefix: str
) -> PredictionOutput:
    """Outputs and metrics of a data set; see `Trainer.predict`."""
    dataloader = trainer.get_test_dataloader(test_dataset)
    started = time.time()
    output = trainer.evaluation_loop(
        dataloader, description="Prediction", ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix
    )
    add_speed(trainer, output, metric_key_prefix, started)
    trainer.callback_handler.fire("on_predict", metrics=output.metrics)
    return PredictionOutput(output.predictions, output.label_ids, output.metrics)
