"""NEFTune (arXiv 2310.05914, algorithm 1): noise on the embeddings while training."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch

from .errors import OptionError


@contextlib.contextmanager
def neftune(model: torch.nn.Module, alpha: float) -> Iterator[None]:
    """Add U(-1, 1) · alpha / √(L · d) to the output of the input embeddings, in training mode.

    L is the number of real tokens of each row, d the width; padding gets no noise where the model is called with
    an `attention_mask` of shape (rows, length). Where there is none, L is the length of the batch. Whatever
    happens inside, the model is as before afterwards; nothing is added to its state.

    Args:
        model: Has `get_input_embeddings()`, as models of transformers and peft do; or the embedding layer itself.
        alpha: Strength of the noise, often 5.

    Raises:
        OptionError: alpha is no number of 0 or more, or the model has no input embeddings.
    """
    if not isinstance(alpha, (int, float)) or not 0 <= alpha < math.inf:
        raise OptionError("neftune_noise_alpha", alpha, "give 0 or more, often 5")
    embeddings = model if isinstance(model, torch.nn.Embedding) else find_embeddings(model)
    if embeddings is None:
        fix = "give it one that returns its embedding layer, or call neftune() on that layer"
        raise OptionError("neftune_noise_alpha", alpha, f"{type(model).__name__} has no get_input_embeddings(): {fix}")
    masks: list[torch.Tensor | None] = [None]

    def note_mask(module: torch.nn.Module, args: Any, keywords: dict[str, Any]) -> None:
        mask = keywords.get("attention_mask")
        masks[0] = mask if isinstance(mask, torch.Tensor) and mask.dim() == 2 else None

    def add_noise(module: torch.nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        return with_noise(output, alpha, masks[0]) if module.training else output

    hooks = [
        model.register_forward_pre_hook(note_mask, with_kwargs=True),
        embeddings.register_forward_hook(add_noise),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def find_embeddings(model: torch.nn.Module) -> torch.nn.Module | None:
    """The layer that a model says takes its token ids, or None where it says nothing."""
    find = getattr(model, "get_input_embeddings", None)
    found = find() if callable(find) else None
    return found if isinstance(found, torch.nn.Module) else None


def with_noise(output: torch.Tensor, alpha: float, mask: torch.Tensor | None) -> torch.Tensor:
    """Embeddings with noise.

    Args:
        output: Shape (rows, length, width).
        alpha: Strength.
        mask: Shape (rows, length), 1 for real tokens; None if not known.
    """
    noise = torch.zeros_like(output).uniform_(-1, 1)
    if mask is None or output.dim() != 3 or mask.shape != output.shape[:2]:
        return output + noise * (alpha / math.sqrt(math.prod(output.shape[1:])))
    real = mask.to(output.dtype)
    # Counted in float32: the low-precision types have no exact numbers for long rows.
    bound = alpha / (mask.sum(dim=1, dtype=torch.float32).clamp(min=1) * output.shape[2]).sqrt()
    return output + noise * bound.to(output.dtype)[:, None, None] * real[..., None]
