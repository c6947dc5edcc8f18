"""The loss of an optimizer step: one mean over all its targets, however they are split into batches and devices."""

from __future__ import annotations

import ast
import dis
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import log_softmax

from .errors import ArgumentError

IGNORED = -100
COUNT = "num_items_in_batch"


@dataclass(frozen=True)
class ModelFacts:
    """What the loss needs to know of a model; read once, from its class.

    Attributes:
        label_names: The inputs of `forward` that are targets.
        divides_by_count: `forward` divides its summed loss by the `num_items_in_batch` it is given. Many models
            accept that keyword and ignore it; their mean is turned into the batch's share here.
        shifts_labels: The loss is that of a causal language model: position 0 of a row is never predicted.
        returns_loss_alone: `forward` can return a loss without labels (`return_loss=True` is its default).
    """

    label_names: tuple[str, ...]
    divides_by_count: bool
    shifts_labels: bool
    returns_loss_alone: bool

    @classmethod
    def of(cls, model: torch.nn.Module, label_names: Sequence[str] | None = None) -> ModelFacts:
        parameters = inspect.signature(model.forward).parameters
        if label_names is None:
            extra = ("start_positions", "end_positions") if "QuestionAnswering" in type(model).__name__ else ()
            label_names = [name for name in parameters if "label" in name or name in extra]
        config = getattr(model, "config", None)
        loss_name = getattr(getattr(model, "loss_function", None), "__name__", "")
        default = parameters["return_loss"].default if "return_loss" in parameters else None
        return cls(
            label_names=tuple(label_names),
            divides_by_count=_divides_by_count(model),
            shifts_labels=loss_name == "ForCausalLMLoss" and not getattr(config, "is_encoder_decoder", False),
            returns_loss_alone=default is True,
        )


def _divides_by_count(model: torch.nn.Module) -> bool:
    declared = getattr(model, "accepts_loss_kwargs", None)
    forward = inspect.unwrap(type(model).forward)
    keywords = inspect.signature(forward).parameters.values()
    named = any(p.name == COUNT for p in keywords)
    if declared is False or not (named or any(p.kind is p.VAR_KEYWORD for p in keywords)):
        return False
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(forward)))
    except (OSError, SyntaxError, TypeError):
        return named
    return named or any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "loss_function"
        and any(keyword.arg in (None, COUNT) for keyword in node.keywords)
        for node in ast.walk(tree)
    )


def label_smoothing(
    outputs: Any, labels: torch.Tensor, epsilon: float, count: torch.Tensor | int | None, shift: bool
) -> torch.Tensor:
    """Cross-entropy against (1 - epsilon) on the target and epsilon over all classes (arXiv 1512.00567, section 7).

    Args:
        outputs: The model's outputs, logits first or under "logits", shape (..., classes).
        labels: Class numbers, shape (...); -100 is not counted.
        epsilon: Weight of the uniform part.
        count: Targets to divide by; None for those of this batch.
        shift: Position i of a row predicts the label at i + 1.
    """
    logits = outputs["logits"] if isinstance(outputs, Mapping) else outputs[0]
    if shift:
        logits, labels = logits[..., :-1, :], labels[..., 1:]
    negative = -log_softmax(logits, dim=-1)
    labels = labels.unsqueeze(-1) if labels.dim() == negative.dim() - 1 else labels
    ignored = labels.eq(IGNORED)
    target = negative.gather(dim=-1, index=labels.clamp(min=0)).masked_fill(ignored, 0.0)
    uniform = negative.sum(dim=-1, keepdim=True, dtype=torch.float32).masked_fill(ignored, 0.0)
    divisor = ignored.numel() - ignored.long().sum() if count is None else count
    if torch.is_tensor(divisor):
        divisor = divisor.to(negative.device)
    return (1 - epsilon) * target.sum() / divisor + epsilon * uniform.sum() / (divisor * negative.shape[-1])


@dataclass(frozen=True)
class LossRule:
    """How the loss of a batch is computed, counted and scaled.

    Attributes:
        facts: See `ModelFacts`.
        smoothing: `label_smoothing_factor`.
        function: The user's `compute_loss_func`, which divides by the count that it is given.
        predicted_only: Count the targets that a causal model predicts, not all labels but -100.
    """

    facts: ModelFacts
    smoothing: float = 0.0
    function: Callable[..., torch.Tensor] | None = None
    predicted_only: bool = True

    @property
    def divides_by_count(self) -> bool:
        return self.facts.divides_by_count or self.function is not None or self.smoothing > 0

    def targets(self, batch: Any) -> torch.Tensor | int:
        """How many targets the mean of this batch's loss runs over: labels that count, else rows."""
        labels = None
        if isinstance(batch, Mapping):
            labels = batch.get("shift_labels")
            shift = labels is None and self.facts.shifts_labels and self.predicted_only
            if labels is None:
                labels = next((batch[name] for name in self.facts.label_names if name in batch), None)
        if not isinstance(labels, torch.Tensor):
            return n_rows(batch)
        if labels.is_floating_point():
            return labels.numel()
        return (labels[..., 1:] if shift and labels.dim() > 1 else labels).ne(IGNORED).sum()

    def compute(
        self, model: torch.nn.Module, inputs: dict[str, Any], count: torch.Tensor | int | None
    ) -> tuple[torch.Tensor, Any]:
        """The loss and the outputs: a mean, or with `count` this batch's share of a mean over `count` targets."""
        own = self.targets(inputs) if count is not None and not self.divides_by_count else None
        labels = None
        if (self.smoothing > 0 or self.function is not None) and "labels" in inputs:
            labels = inputs.pop("labels")
        if count is not None and self.facts.divides_by_count:
            inputs = {**inputs, COUNT: count}
        outputs = model(**inputs) if isinstance(inputs, Mapping) else model(*as_tuple(inputs))
        if self.function is not None:
            return self.function(outputs, labels, num_items_in_batch=count), outputs
        if labels is not None:
            return label_smoothing(outputs, labels, self.smoothing, count, self.facts.shifts_labels), outputs
        loss = loss_of(outputs, inputs)
        return (loss if own is None or count is None else loss * (own / count)), outputs


def loss_of(outputs: Any, inputs: Any) -> torch.Tensor:
    """The loss among a model's outputs: under "loss", or the first of a tuple.

    Raises:
        ArgumentError: there is none; most often the labels are missing from the data.
    """
    if outputs is None:
        raise ArgumentError(
            "model", "forward returned None", "let it return a dict with the loss, or override compute_loss"
        )
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs[0] if len(outputs) else None
    if loss is None:
        given = list(inputs) if isinstance(inputs, Mapping) else type(inputs).__name__
        returned = list(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
        raise ArgumentError(
            "labels",
            f"the model returned no loss, only {returned}, from the inputs {given}",
            "give the data a labels column (or name it in label_names), or override compute_loss",
        )
    return loss  # type: ignore[no-any-return]  # a model's output is untyped


def as_tuple(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)


def n_rows(batch: Any) -> int:
    """Rows of a nested batch: the first dimension of its first tensor; 1 if it has none."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else 1
    values = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return next((n_rows(value) for value in values if isinstance(value, torch.Tensor | Mapping | list | tuple)), 1)


@dataclass(frozen=True)
class LossCall:
    """How to call a Trainer's `compute_loss`, which may be a user's, with or without the count.

    Attributes:
        is_own: It is the Trainer's own.
        takes_count: It has a parameter `num_items_in_batch`.
        divides: Given the count, it returns the batch's share rather than a mean: it is the Trainer's own, or
            its code uses the count. One that accepts the count and never looks at it returns a mean.
    """

    is_own: bool
    takes_count: bool
    divides: bool

    @property
    def wants_count(self) -> bool:
        """Whether a user's method divides by the count, and so must be given one at each step."""
        return self.divides and not self.is_own

    @classmethod
    def of(cls, method: Callable[..., Any], is_own: bool) -> LossCall:
        parameters = inspect.signature(method).parameters
        forwards = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        takes = COUNT in parameters or forwards
        return cls(is_own, takes, is_own or (takes and (forwards or _reads(method, COUNT))))


def _reads(method: Callable[..., Any], name: str) -> bool:
    function = inspect.unwrap(getattr(method, "__func__", method))
    code = getattr(function, "__code__", None)
    if code is None:
        return True
    return any(step.argval == name and step.opname.startswith("LOAD") for step in dis.get_instructions(code))
