"""The first batch of a run, looked at before the model sees it: what would stop a GPU without a word is said here."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .construction import base_model
from .errors import ArgumentError

CLASSIFIERS = ("SequenceClassification", "TokenClassification", "ImageClassification", "AudioClassification")
WRITERS = ("CausalLM", "LMHeadModel", "MaskedLM", "ConditionalGeneration")
IGNORED = -100


def check_batch(model: torch.nn.Module, inputs: Any) -> None:
    """Refuse a batch that the model's embeddings or its head cannot hold.

    Args:
        model: As given to the Trainer.
        inputs: A batch as the loader gives it. Only what is in CPU memory is looked at, so that nothing waits.

    Raises:
        ArgumentError: there is no batch, or a token or label is out of range; names the column and the range.
    """
    if inputs is None:
        raise ArgumentError("data_collator", None, "it returned no batch: return a dict of tensors")
    if not isinstance(inputs, Mapping):
        return
    inner = base_model(model)
    check_tokens(inner, inputs.get("input_ids"))
    check_labels(inner, inputs.get("labels"))


@contextlib.contextmanager
def tells_batch(model: torch.nn.Module, inputs: Any) -> Iterator[None]:
    """Add to an error what the first batch was, and what the model's forward takes."""
    try:
        yield
    except Exception as error:
        inner = base_model(model)
        parameters = inspect.signature(inner.forward).parameters
        if isinstance(inputs, Mapping):
            given = ", ".join(f"{name} ({described(value)})" for name, value in inputs.items())
        elif isinstance(inputs, list | tuple):
            given = ", ".join(f"{name} ({described(value)})" for name, value in zip(parameters, inputs, strict=False))
            given += ", in this order, since its rows are no dicts"
        else:
            given = described(inputs)
        taken = ", ".join(parameters)
        error.add_note(f"The first batch gave {type(inner).__name__}.forward({taken}):\n{given}.")
        raise


def described(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return type(value).__name__


def extent(values: Any) -> tuple[int, int] | None:
    """The least and the greatest of whole numbers in CPU memory, without the ignored ones; None for anything else."""
    if not isinstance(values, torch.Tensor) or values.device.type != "cpu" or values.dtype.is_floating_point:
        return None
    numbers = values.numpy()
    numbers = numbers[numbers != IGNORED]
    return (int(numbers.min()), int(numbers.max())) if numbers.size else None


def check_tokens(model: torch.nn.Module, tokens: Any) -> None:
    embed = getattr(model, "get_input_embeddings", None)
    found = extent(tokens)
    try:
        size = getattr(embed(), "num_embeddings", None) if embed is not None else None
    except (NotImplementedError, AttributeError):
        size = None
    if found is None or size is None:
        return
    wrong = found[1] if found[1] >= size else found[0] if found[0] < 0 else None
    if wrong is not None:
        raise ArgumentError(
            "input_ids",
            wrong,
            f"the model has {size} tokens, 0 to {size - 1}: tokenize with its own tokenizer, or call "
            "model.resize_token_embeddings(len(tokenizer))",
        )


def check_labels(model: torch.nn.Module, labels: Any) -> None:
    """Class numbers against the classes of the head, or tokens against the vocabulary."""
    config = getattr(model, "config", None)
    found = extent(labels)
    if config is None or found is None:
        return
    name = type(model).__name__
    if name.endswith(CLASSIFIERS) and getattr(config, "problem_type", None) in (None, "single_label_classification"):
        size, fix = getattr(config, "num_labels", 1), "load it with num_labels=, or number the labels from 0"
    elif name.endswith(WRITERS):
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        size, fix = getattr(text, "vocab_size", 1), f"tokenize with its own tokenizer; {IGNORED} is what is not learned"
    else:
        return
    wrong = found[1] if found[1] >= size else found[0] if found[0] < 0 else None
    if size > 1 and wrong is not None:
        raise ArgumentError("labels", wrong, f"{name} has {size}, 0 to {size - 1}: {fix}")
