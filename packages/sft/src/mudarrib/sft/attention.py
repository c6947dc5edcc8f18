"""SDPA over packed rows that computes nothing between examples.

The mask that keeps examples apart leaves a row's attention as costly as that of one long example: quadratic in the row.
Here each example is attended to by itself, with others of a similar length as a batch. FlashAttention has kernels for
that; on CPUs this does the same with those of SDPA. Whatever isn't causal attention within examples, and nothing else,
goes the usual way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "sdpa_by_example"
WORTH_IT = 0.5  # of the usual cost
SMALLEST = 4  # examples up to this length are one batch

Groups = list[torch.Tensor]
_groups_of: WeakIdKeyDictionary = WeakIdKeyDictionary()


def sdpa_by_example(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """An attention function of transformers; see `sdpa_attention_forward` for its arguments.

    Args:
        module: The layer.
        query: Shape (batch, heads, seq, head size).
        key: Shape (batch, key heads, seq, head size).
        value: As the key.
        attention_mask: Boolean, shape (batch, 1, seq, seq), true where a query attends; or anything else.
        **kwargs: Handed on.

    Returns:
        The attended values, shape (batch, seq, heads, head size).
    """
    groups = None
    if attention_mask is not None and kwargs.get("position_bias") is None and query.shape[2] == key.shape[2]:
        groups = groups_of(attention_mask, query.shape[0])
    if groups is None:
        usual: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return usual
    kwargs["is_causal"] = True
    rows, heads, length, _ = query.shape
    tokens = [x.transpose(1, 2).flatten(0, 1) for x in (query, key, value)]
    places, attended = [], []
    for group in groups:  # -1 fills up short examples: causal attention never looks there from before
        apart = [x[group.clamp(min=0)].transpose(1, 2) for x in tokens]
        values, _ = sdpa_attention_forward(module, *apart, None, **kwargs)
        real = group >= 0
        places.append(group[real])
        attended.append(values[real])
    made = torch.cat(attended)[torch.argsort(torch.cat(places))]
    return made.view(rows, length, heads, -1), None


def groups_of(mask: torch.Tensor, rows: int) -> Groups | None:
    """The examples that a mask keeps apart, if that is all it does and if it pays to go by them.

    Args:
        mask: As in `sdpa_by_example`.
        rows: Rows of the batch.

    Returns:
        Of examples with a similar length, the place of each token in the batch, shape (examples, longest), -1 where an
        example has ended. None where attention must go the usual way.
    """
    if mask.dtype != torch.bool or mask.device.type != "cpu" or mask.shape[:2] != (rows, 1):
        return None
    if mask not in _groups_of:  # all layers are given the same mask
        _groups_of[mask] = _grouped(mask[:, 0])
    found: Groups | None = _groups_of[mask]
    return found


def _grouped(mask: torch.Tensor) -> Groups | None:
    rows, length, _ = mask.shape
    begin = torch.arange(length) + 1 - mask.sum(-1)  # first place that each token sees, if those before it are all
    places = torch.arange(length)
    causal = (places <= places[:, None]) & (places >= begin[:, :, None])
    starts = begin == places
    if not torch.equal(mask, causal) or not (begin.diff(dim=1)[~starts[:, 1:]] == 0).all():
        return None
    first = np.flatnonzero(starts.numpy())
    sizes = np.diff(np.append(first, rows * length))
    buckets = _buckets(sizes)
    if (buckets**2).sum() > WORTH_IT * rows * length**2:
        return None
    return [_places(first[buckets == size], sizes[buckets == size]) for size in np.unique(buckets)]


def _buckets(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each length the next power of 2."""
    powers: NDArray[np.int64] = 2 ** np.ceil(np.log2(np.maximum(sizes, SMALLEST))).astype(np.int64)
    return powers


def _places(first: NDArray[np.int64], sizes: NDArray[np.int64]) -> torch.Tensor:
    within = np.arange(sizes.max())
    return torch.from_numpy(np.where(within < sizes[:, None], first[:, None] + within, -1))


def go_by_example(model: Any) -> bool:
    """Let a model attend by example, where it uses SDPA on a CPU and lets that be set; say whether it does."""
    if attention_of(model) != "sdpa" or next(model.parameters()).device.type != "cpu":
        return False
    if not getattr(model, "_can_set_attn_implementation", lambda: False)():
        return False
    AttentionInterface.register(NAME, sdpa_by_example)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
    return True


def go_as_usual(model: Any) -> None:
    """Undo `go_by_example`."""
    if attention_of(model) == NAME:
        model.set_attn_implementation("sdpa")


def attention_of(model: nn.Module) -> str:
    """The name of a model's attention implementation."""
    return str(getattr(getattr(model, "config", None), "_attn_implementation", ""))
