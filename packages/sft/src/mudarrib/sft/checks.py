"""What a model is refused for before it is trained, and data beside it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import torch
from datasets import Dataset
from numpy.typing import NDArray
from torch import nn
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from mudarrib.core_loop import ArgumentError

from .attention import attention_of
from .config import SFTConfig
from .lora import is_adapted
from .packed import PackedDataset, TokenColumn

OTHER_TASKS = ("Classification", "QuestionAnswering", "MultipleChoice", "NextSentencePrediction")


def check_causal(model: Any) -> None:
    """Refuse a model that doesn't predict the next token: its loss would be that of another task."""
    name = type(model.get_base_model() if is_adapted(model) else model).__name__
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise ArgumentError("model", name, "it has an encoder and a decoder; train it with Seq2SeqTrainer")
    if name in MODEL_FOR_MASKED_LM_MAPPING_NAMES.values() and name not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        raise ArgumentError("model", name, "it fills in masked tokens; load it with AutoModelForCausalLM")
    if name.endswith(OTHER_TASKS):
        raise ArgumentError("model", name, "its head does not predict tokens; load it with AutoModelForCausalLM")


def check_trainable(model: nn.Module, config: SFTConfig) -> None:
    """Refuse an attention implementation that has no backward pass where the model will run."""
    if attention_of(model) == "flex_attention" and not flex_has_backward(config.device):
        raise ArgumentError(
            "attn_implementation",
            "flex_attention",
            f"on {config.device.type} torch has no backward pass of it, so that nothing can be trained; load the model "
            "with attn_implementation='sdpa'",
        )


def flex_has_backward(device: torch.device) -> bool:
    """Whether gradients flow through flex attention on a device; torch 2.13 has them on GPUs alone."""
    from torch.nn.attention.flex_attention import flex_attention

    query = torch.zeros(1, 1, 16, 16, device=device, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it should be compiled
        try:
            flex_attention(query, query, query)
        except NotImplementedError:
            return False
    return True


def check_fits(dataset: Any, name: str, model: Any, columns: tuple[str, ...] = ("input_ids",)) -> None:
    """Refuse tokens that the model has no embedding for, and examples longer than its table of positions.

    What isn't at hand as tokens (a stream, rows that are tokenized as they are read) is not looked through.
    """
    if isinstance(dataset, dict):
        for key, each in dataset.items():
            check_fits(each, key, model, columns)
    if not hasattr(model, "get_input_embeddings"):
        return
    if isinstance(dataset, PackedDataset):
        _check_tokens(dataset.ids, dataset.plan.lengths, name, model)
    elif isinstance(dataset, Dataset) and dataset.format["type"] != "custom":
        for column in set(columns) & set(dataset.column_names):
            kind = dataset.data.table.field(column).type
            if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                raise ArgumentError(
                    f"{name}_dataset", f"{column}: {kind}", "tokenize it: this column holds lists of ids"
                )
            if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_integer(kind.value_type):
                tokens = TokenColumn.of(dataset, column)
                _check_tokens(tokens, tokens.lengths(), name, model)


def _check_tokens(tokens: TokenColumn, lengths: NDArray[np.int64], name: str, model: Any) -> None:
    embeddings = model.get_input_embeddings()
    known, largest = getattr(embeddings, "num_embeddings", None), tokens.largest()
    if known is not None and largest >= known:
        raise ArgumentError(
            f"{name}_dataset",
            f"token {largest}",
            f"the model has embeddings of {known} tokens; give the tokenizer that belongs to it, or call "
            "model.resize_token_embeddings(len(tokenizer))",
        )
    longest, table = int(lengths.max(initial=0)), position_table(model, embeddings)
    if table is not None and longest > table:
        raise ArgumentError(
            "max_length", longest, f"an example has so many tokens and the model positions for {table}; cut them"
        )


def position_table(model: nn.Module, embeddings: nn.Module) -> int | None:
    """How many positions a model has learned embeddings for; None where it computes them."""
    positions = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    tables = (m for m in model.modules() if isinstance(m, nn.Embedding) and m is not embeddings)
    found = positions is not None and any(0 <= m.num_embeddings - positions <= 2 for m in tables)
    return positions if found else None


def check_collator(collator: Callable[..., Any] | None, dataset: Any) -> None:
    """Refuse a collator of the user's that doesn't tell the examples of a packed row apart."""
    if collator is None or not isinstance(dataset, PackedDataset):
        return
    try:
        apart = "position_ids" in collator([dataset[0]])
    except Exception:  # whatever it stumbles over, packed rows are not for it
        apart = False
    if not apart:
        raise ArgumentError(
            "data_collator",
            type(collator).__name__,
            "with packing a batch needs position_ids that restart at each of the row's seq_lengths; leave it out, or "
            "build on mudarrib.sft.CausalCollator",
        )
