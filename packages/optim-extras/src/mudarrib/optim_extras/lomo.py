"""LOMO (arXiv 2306.09782, algorithm 1): stochastic gradient descent, fused into the backward pass."""

from __future__ import annotations

from typing import Any

import torch

from .checks import Shapes
from .exact_state import PerParameter
from .fused_backward import FusedBackward


class Lomo(PerParameter):
    """W ← W (1 - lr · weight_decay) - lr · g, with g in float32.

    Args:
        params: Parameters or groups.
        lr: Learning rate.
        weight_decay: Decay of the weights, times the learning rate.
        clip_grad_value: Limit of each entry of a gradient.
    """

    def __init__(
        self, params: Any, lr: float = 1e-3, weight_decay: float = 0.0, clip_grad_value: float | None = None
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "clip_grad_value": clip_grad_value})

    def _state_shapes(self, parameter: torch.Tensor, group: dict[str, Any]) -> Shapes:
        return {}

    def is_elementwise(self, group: dict[str, Any]) -> bool:
        return True

    def update(
        self, parameter: torch.Tensor, gradient: torch.Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        limit = group["clip_grad_value"]
        if limit is not None:
            gradient = gradient.clamp(-limit, limit)
        if parameter.dtype == torch.float32:
            parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(gradient, alpha=-group["lr"])
            return
        weights = parameter.float().mul_(1 - group["lr"] * group["weight_decay"])
        parameter.copy_(weights.add_(gradient.float(), alpha=-group["lr"]))


class FusedLomo(FusedBackward, Lomo):
    """LOMO inside the backward pass: no gradient outlives its use."""
