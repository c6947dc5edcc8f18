"""APOLLO (arXiv 2412.05270, algorithm 1): SGD's memory with AdamW's learning rates, channel by channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .checks import Shapes
from .errors import OptionError
from .fused_backward import FusedBackward
from .galore.adamw import GaLoreAdamW
from .galore.projector import sides
from .norms import euclidean

GROWTH = 1.01
TINY = 1e-8


class ApolloAdamW(GaLoreAdamW):
    """AdamW in a random subspace tells how much to scale each channel of the whole gradient.

    Groups with a `rank` may set `update_proj_gap` (steps between random subspaces), `scale` (the update is
    multiplied by its root, as in the authors' package), `proj_type` (std, reverse_std, right, left) and
    `scale_type`: "channel", or "tensor" for one factor a matrix (APOLLO-Mini, with rank 1 and scale 128).
    The subspace is drawn anew from a seed at every step, so that it takes no memory. The norm of an update grows
    by at most 1 % from step to step (the paper's norm-growth limiter). The other arguments are those of
    `GaLoreAdamW`.
    """

    low_rank: Mapping[str, Any] = {"update_proj_gap": 200, "scale": 1.0, "proj_type": "std", "scale_type": "channel"}

    def update(
        self, parameter: torch.Tensor, gradient: torch.Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        if not group.get("rank"):
            super().update(parameter, gradient, state, group)
            return
        state.setdefault("step", 0)
        side = self.side(gradient, group)
        wide = gradient.float()
        basis = self.basis(wide, side, state, group)
        low = wide @ basis if side == "right" else basis.T @ wide
        direction = self.direction(state, low, group)
        dim = None if group["scale_type"] == "tensor" else (1 if side == "right" else 0)
        factor = norm(direction, dim) / (norm(low, dim) + TINY)
        update = self.limited(wide * factor, state)
        self.apply(parameter, update.mul_(group["scale"] ** 0.5), state, group, None)

    def _state_shapes(self, parameter: torch.Tensor, group: dict[str, Any]) -> Shapes:
        return {
            name: shape
            for name, shape in super()._state_shapes(parameter, group).items()
            if not name.startswith("basis_")
        }

    def _take(self, group: dict[str, Any]) -> None:
        super()._take(group)
        for parameter in group["params"] if group.get("rank") else ():
            self.side(parameter, group)

    @staticmethod
    def side(gradient: torch.Tensor, group: dict[str, Any]) -> str:
        found = sides(gradient.shape, group["proj_type"])
        if len(found) != 1:
            raise OptionError("option proj_type", group["proj_type"], "APOLLO projects one side: std, left or right")
        return found[0]

    @staticmethod
    def basis(gradient: torch.Tensor, side: str, state: dict[str, Any], group: dict[str, Any]) -> torch.Tensor:
        """Random columns with entries N(0, 1 / rank), the same for `update_proj_gap` steps."""
        rows = gradient.shape[1 if side == "right" else 0]
        rank = min(group["rank"], *gradient.shape)
        generator = torch.Generator(gradient.device)
        generator.manual_seed(state["place"] * 1_000_003 + state["step"] // group["update_proj_gap"])
        return torch.randn(rows, rank, generator=generator, device=gradient.device).div_(rank**0.5)

    @staticmethod
    def limited(update: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
        """The update, in place, its norm at most 1 % above that of the step before."""
        size = norm(update, None)
        if "update_norm" in state:
            excess = (size / (state["update_norm"] + TINY) / GROWTH).clamp_(min=1.0)
            update, size = update.div_(excess), size / excess
        state["update_norm"] = size
        return update


class ApolloAdamWLayerwise(FusedBackward, ApolloAdamW):
    """APOLLO that updates each layer inside the backward pass."""


def norm(matrix: torch.Tensor, dim: int | None) -> torch.Tensor:
    """Norm of the whole, or of each row (dim 1) or column (dim 0) with that dimension kept."""
    if dim is None:
        return euclidean(matrix)
    size: torch.Tensor = torch.linalg.vector_norm(matrix, dim=dim, keepdim=True)
    return size
