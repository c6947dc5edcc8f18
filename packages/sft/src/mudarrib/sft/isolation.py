"""No attention across the examples of a packed row, for any architecture and attention implementation.

Packed batches carry `position_ids` that restart at each example, and no attention mask. Most models of transformers
read the borders from the positions, but only when they build no cache; others ignore them. So a hook on the model
switches the cache off for such batches and, where a model needs it, another on each of its layers puts the border
into the attention mask that the layer is given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

Hook = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]] | None]


class Isolation:
    """Hooks that keep the examples of a packed row apart; a batch that is not packed passes unchanged.

    Attributes:
        in_layers: The layers' masks are changed too, not only the call of the model.
    """

    def __init__(self, model: nn.Module, in_layers: bool) -> None:
        self.in_layers = in_layers
        self._segments: torch.Tensor | None = None
        self._masks: dict[Any, Any] = {}
        self._eager = getattr(getattr(model, "config", None), "_attn_implementation", "eager") == "eager"
        self._handles: list[RemovableHandle] = [model.register_forward_pre_hook(self._before_model, with_kwargs=True)]
        for layer in attention_layers(model) if in_layers else ():
            self._handles.append(layer.register_forward_pre_hook(self._before_layer, with_kwargs=True))

    def remove(self) -> None:
        """Take the hooks off; the model is as it was."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _before_model(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._masks.clear()
        self._segments = None
        if is_packed(kwargs):
            kwargs["use_cache"] = False
            if self.in_layers:
                self._segments = segments(kwargs["position_ids"])
        return args, kwargs

    def _before_layer(
        self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if self._segments is None:
            return None
        names = list(inspect.signature(layer.forward).parameters)
        at = names.index("attention_mask")
        given = args[at] if at < len(args) else kwargs.get("attention_mask")
        hidden = args[0] if args else kwargs["hidden_states"]
        mask = self._with_borders(given, hidden.dtype)
        if at < len(args):
            return (*args[:at], mask, *args[at + 1 :]), kwargs
        return args, {**kwargs, "attention_mask": mask}

    def _with_borders(self, mask: Any, dtype: torch.dtype) -> Any:
        key = (id(mask), dtype)  # all layers of one kind are given the same mask
        if key not in self._masks:
            assert self._segments is not None
            self._masks[key] = (mask, with_borders(mask, self._segments, dtype, self._eager))
        return self._masks[key][1]


def is_packed(kwargs: Mapping[str, Any]) -> bool:
    """Whether a call of a model is one with a packed batch: positions are given, but neither mask nor cache."""
    return kwargs.get("position_ids") is not None and all(
        kwargs.get(name) is None for name in ("attention_mask", "cache", "past_key_values")
    )


def segments(position_ids: torch.Tensor) -> torch.Tensor:
    """Number of the example that each token belongs to, shape (batch, seq), from positions that restart."""
    restart = torch.ones_like(position_ids, dtype=torch.bool)
    restart[:, 1:] = position_ids.diff(dim=-1) != 1
    return restart.cumsum(dim=-1)


def with_borders(mask: Any, segment: torch.Tensor, dtype: torch.dtype, eager: bool) -> Any:
    """An attention mask that in addition keeps the segments apart.

    Args:
        mask: What the model made: None for plain causal attention, a boolean or additive tensor of shape
            (batch, 1, seq, seq), or flex attention's BlockMask.
        segment: Example of each token, shape (batch, seq).
        dtype: Of the hidden states; an additive mask has it.
        eager: Whether a mask that has to be made is additive; else it is boolean.
    """
    if hasattr(mask, "mask_mod"):
        return _flex_with_borders(mask, segment)
    same = segment[:, None, :, None] == segment[:, None, None, :]
    if mask is None:
        length = segment.shape[-1]
        same = same & torch.ones(length, length, dtype=torch.bool, device=segment.device).tril()
        if not eager:
            return same
        return torch.zeros(same.shape, dtype=dtype, device=same.device).masked_fill_(~same, torch.finfo(dtype).min)
    if mask.dtype == torch.bool:  # eager code fills where a boolean mask is true; the others attend there
        return mask | ~same if eager else mask & same
    return mask.masked_fill(~same, torch.finfo(mask.dtype).min)


def _flex_with_borders(mask: Any, segment: torch.Tensor) -> Any:
    from torch.nn.attention.flex_attention import and_masks, create_block_mask

    def same(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return segment[batch, query] == segment[batch, key]

    batch, length = segment.shape
    return create_block_mask(and_masks(mask.mask_mod, same), batch, None, length, length, device=str(segment.device))


def attention_layers(model: nn.Module) -> Iterator[nn.Module]:
    """The outermost members of the model's lists of layers whose `forward` takes an `attention_mask`."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            for layer in module:
                if "attention_mask" in inspect.signature(layer.forward).parameters:
                    yield layer
