"""GaLore with AdamW (arXiv 2403.03507, algorithm 2)."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..checks import Shapes
from ..errors import OptionError
from ..fused_backward import FusedBackward
from . import projector
from .optimizer import LowRankOptimizer

FUSED = ("cpu", "cuda")


def fused_direction(
    state: dict[str, Any], gradient: torch.Tensor, beta1: float, beta2: float, eps: float
) -> torch.Tensor:
    """M / (√V + eps) after the moments took in the gradient, by torch's fused AdamW in one pass.

    That one corrects the bias of both moments and adds eps after; the rate and eps given here take it out again.
    """
    direction = torch.zeros_like(gradient)
    step = state["step"]
    root = math.sqrt(1 - beta2**step)
    # The function around it in torch.optim takes longer than the kernel on a small matrix.
    torch._fused_adamw_(
        [direction],
        [gradient],
        [state["exp_avg"]],
        [state["exp_avg_sq"]],
        [],
        [torch.tensor(float(step), device=gradient.device)],
        amsgrad=False,
        beta1=beta1,
        beta2=beta2,
        lr=-(1 - beta1**step) / root,
        weight_decay=0.0,
        eps=eps / root,
        maximize=False,
    )
    return direction


class GaLoreAdamW(LowRankOptimizer):
    """AdamW whose moments live in the gradient's subspace.

    Args:
        params: Parameters or groups; see `LowRankOptimizer` for what a group may set.
        lr: Learning rate.
        betas: Decay of the two moments.
        eps: Added to the root of the second moment, before its bias is corrected.
        weight_decay: Decay of the weights, times the learning rate, after the update.
        correct_bias: Correct the moments for their start at zero.
        state_dtype: Type of the moments: "float32", or "parameter" for that of the gradient.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
        state_dtype: str = "float32",
    ) -> None:
        if state_dtype not in ("float32", "parameter"):
            raise OptionError("state_dtype", state_dtype, "give one of float32, parameter")
        self.state_dtype: torch.dtype | None = None if state_dtype == "parameter" else torch.float32
        super().__init__(
            params,
            {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "correct_bias": correct_bias},
        )

    def is_elementwise(self, group: dict[str, Any]) -> bool:
        return not group.get("rank")

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "state_dtype": self.state_dtype}

    def _moment_shapes(self, shape: tuple[int, ...]) -> Shapes:
        return {"exp_avg": shape, "exp_avg_sq": shape}

    def direction(self, state: dict[str, Any], gradient: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        if self.state_dtype is not None:
            gradient = gradient.to(self.state_dtype)
        if "exp_avg" not in state:
            state["exp_avg"] = torch.zeros_like(gradient)
            state["exp_avg_sq"] = torch.zeros_like(gradient)
        beta1, beta2 = group["betas"]
        state["step"] += 1
        if state["exp_avg"].dtype == gradient.dtype == torch.float32 and gradient.device.type in FUSED:
            return fused_direction(state, gradient, beta1, beta2, group["eps"])
        state["exp_avg"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        return state["exp_avg"] / state["exp_avg_sq"].sqrt().add_(group["eps"])  # type: ignore[no-any-return]  # a tensor

    def step_size(self, state: dict[str, Any], parameter: torch.Tensor, group: dict[str, Any]) -> float:
        if not group["correct_bias"]:
            return float(group["lr"])
        beta1, beta2 = group["betas"]
        return float(group["lr"] * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"]))

    def rotate_moments(self, state: dict[str, Any], rotations: dict[str, torch.Tensor]) -> None:
        if "exp_avg" in state:
            state["exp_avg"] = projector.rotate(state["exp_avg"], rotations)
            state["exp_avg_sq"] = projector.rotate(state["exp_avg_sq"], rotations, squared=True)


class GaLoreAdamWLayerwise(FusedBackward, GaLoreAdamW):
    """GaLore AdamW that updates each layer inside the backward pass."""
