"""GaLore with Adafactor (arXiv 2403.03507; Adafactor: arXiv 1804.04235, algorithm 4)."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..checks import Shapes
from ..errors import OptionError
from ..factored import FactoredSecondMoment
from ..fused_backward import FusedBackward
from ..norms import root_mean_square
from . import projector
from .optimizer import LowRankOptimizer


class GaLoreAdafactor(LowRankOptimizer):
    """Adafactor whose statistics live in the gradient's subspace.

    Args:
        params: Parameters or groups; see `LowRankOptimizer` for what a group may set.
        lr: Learning rate; None with `relative_step`.
        eps: Added to the squared gradient, and least root mean square of a weight for `scale_parameter`.
        clip_threshold: Largest root mean square of an update.
        decay_rate: Exponent of the second moment's decay, 1 - t^decay_rate.
        beta1: Decay of a first moment, if there is to be one.
        weight_decay: Decay of the weights, times the learning rate, before the update.
        scale_parameter: Multiply the rate by the root mean square of the weight.
        relative_step: Take the rate from the step instead: min(0.01, 1 / √t).
    """

    def __init__(
        self,
        params: Any,
        lr: float | None = None,
        eps: tuple[float, float] = (1e-30, 1e-3),
        clip_threshold: float = 1.0,
        decay_rate: float = -0.8,
        beta1: float | None = None,
        weight_decay: float = 0.0,
        scale_parameter: bool = True,
        relative_step: bool = True,
    ) -> None:
        if (lr is None) != relative_step:
            raise OptionError("lr", lr, "give a learning rate and relative_step=False, or relative_step=True alone")
        settings = {
            "lr": lr,
            "eps": eps,
            "clip_threshold": clip_threshold,
            "decay_rate": decay_rate,
            "beta1": beta1,
            "weight_decay": weight_decay,
            "scale_parameter": scale_parameter,
            "relative_step": relative_step,
        }
        super().__init__(params, settings)

    def _moment_shapes(self, shape: tuple[int, ...]) -> Shapes:
        return {**FactoredSecondMoment.shapes(shape), "exp_avg": shape}

    def direction(self, state: dict[str, Any], gradient: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        state["step"] += 1
        return FactoredSecondMoment.normalised(
            state, gradient.float(), state["step"], group["decay_rate"], group["eps"][0], group["clip_threshold"]
        )

    def step_size(self, state: dict[str, Any], parameter: torch.Tensor, group: dict[str, Any]) -> float:
        rate = min(1e-2, 1 / math.sqrt(state["step"])) if group["relative_step"] else group["lr"]
        if group["scale_parameter"]:
            rate = rate * max(group["eps"][1], float(root_mean_square(parameter)))
        return float(rate)

    def rotate_moments(self, state: dict[str, Any], rotations: dict[str, torch.Tensor]) -> None:
        if "exp_avg" in state:
            state["exp_avg"] = projector.rotate(state["exp_avg"], rotations)
        for side, name in (("left", "exp_avg_sq_row"), ("right", "exp_avg_sq_col")):
            if side in rotations and name in state:
                state[name] = rotations[side].square().T @ state[name]

    def apply(
        self,
        parameter: torch.Tensor,
        direction: torch.Tensor,
        state: dict[str, Any],
        group: dict[str, Any],
        scale: float | None,
    ) -> None:
        size = self.step_size(state, parameter, group)
        change = direction * size
        if group["beta1"] is not None:
            average = state.setdefault("exp_avg", torch.zeros_like(change))
            average.mul_(group["beta1"]).add_(change, alpha=1 - group["beta1"])
            change = average
        if group["weight_decay"] > 0:
            parameter.mul_(1 - group["weight_decay"] * size)
        self.subtract(parameter, change, state, 1.0, scale)


class GaLoreAdafactorLayerwise(FusedBackward, GaLoreAdafactor):
    """GaLore Adafactor that updates each layer inside the backward pass."""
