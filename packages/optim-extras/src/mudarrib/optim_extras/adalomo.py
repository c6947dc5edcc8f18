"""AdaLomo (arXiv 2310.10195, algorithm 1): LOMO with a factored second moment and grouped normalisation."""

from __future__ import annotations

from typing import Any

import torch

from .checks import Shapes
from .exact_state import PerParameter
from .factored import FactoredSecondMoment
from .fused_backward import FusedBackward
from .norms import root_mean_square


class AdaLomo(PerParameter):
    """W ← W (1 - a · weight_decay) - a · u, with a = lr · max(eps, RMS(W)) and u the normalised gradient.

    Args:
        params: Parameters or groups.
        lr: Learning rate, relative to the size of the weights.
        weight_decay: Decay of the weights, times that step.
        decay_rate: Exponent of the second moment's decay, 1 - t^decay_rate.
        clip_threshold: Largest root mean square of an update.
        eps: Added to the squared gradient, and least root mean square of a weight.
        clip_grad_value: Limit of each entry of a gradient.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        decay_rate: float = -0.8,
        clip_threshold: float = 1.0,
        eps: tuple[float, float] = (1e-30, 1e-3),
        clip_grad_value: float | None = None,
    ) -> None:
        settings = {
            "lr": lr,
            "weight_decay": weight_decay,
            "decay_rate": decay_rate,
            "clip_threshold": clip_threshold,
            "eps": eps,
            "clip_grad_value": clip_grad_value,
        }
        super().__init__(params, settings)

    def _state_shapes(self, parameter: torch.Tensor, group: dict[str, Any]) -> Shapes:
        return FactoredSecondMoment.shapes(tuple(parameter.shape))

    def update(
        self, parameter: torch.Tensor, gradient: torch.Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        state["step"] = state.get("step", 0) + 1
        limit = group["clip_grad_value"]
        if limit is not None:
            gradient = gradient.clamp(-limit, limit)
        least_square, least_weight = group["eps"]
        update = FactoredSecondMoment.normalised(
            state, gradient.float(), state["step"], group["decay_rate"], least_square, group["clip_threshold"]
        )
        size = group["lr"] * root_mean_square(parameter).clamp_(min=least_weight)
        keep = 1 - size * group["weight_decay"]
        if parameter.dtype == torch.float32:
            parameter.mul_(keep).sub_(update.mul_(size))
            return
        parameter.copy_(parameter.float().mul_(keep).sub_(update.mul_(size)))


class FusedAdaLomo(FusedBackward, AdaLomo):
    """AdaLomo inside the backward pass: no gradient outlives its use."""
