"""What GaLore's optimizers share: the subspace of each target, and the plain rule for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..exact_state import PerParameter
from . import projector

LOW_RANK: dict[str, object] = {"update_proj_gap": 200, "scale": 0.25, "proj_type": "std", "svd": "warm"}


class LowRankOptimizer(PerParameter):
    """Parameter groups with a `rank` are updated in a subspace of their gradients, the others as usual.

    A group may set `rank`, `update_proj_gap` (steps between subspaces), `scale`, `proj_type` and `svd`: "warm"
    follows the subspace from the old basis, for the next step on, and carries the moments over by the rotation
    between the two; "full" takes the exact SVD and leaves the moments as they are, which is the paper's rule and
    depends on the signs that the SVD happens to return.
    """

    low_rank: Mapping[str, Any] = LOW_RANK

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)
        targets = [p for group in self.param_groups if group.get("rank") for p in group["params"]]
        for group in self.param_groups:
            if group.get("rank"):
                for name, value in self.low_rank.items():
                    group.setdefault(name, value)
        self._places = {parameter: number for number, parameter in enumerate(targets)}

    def direction(self, state: dict[str, Any], gradient: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        """The update in the space of the (projected) gradient, to be subtracted times `step_size`."""
        raise NotImplementedError

    def step_size(self, state: dict[str, Any], parameter: torch.Tensor, group: dict[str, Any]) -> float:
        """The factor of the direction."""
        raise NotImplementedError

    def rotate_moments(self, state: dict[str, Any], rotations: dict[str, torch.Tensor]) -> None:
        """Carry the moments over into a new basis."""
        raise NotImplementedError

    def apply_gradient(self, parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        if group.get("rank"):
            self.state[parameter].setdefault("place", self._places.get(parameter, 0))
        super().apply_gradient(parameter, gradient, group)

    def update(
        self, parameter: torch.Tensor, gradient: torch.Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        if not group.get("rank"):
            state.setdefault("step", 0)
            direction = self.direction(state, gradient, group)
            self.apply(parameter, direction, state, group, None)
            return
        if "offset" not in state:
            state["offset"] = state["place"] * group["update_proj_gap"] // max(1, len(self._places))
            state["step"] = 0
        is_first, is_due = state["step"] == 0, projector.is_due(state, group)
        if is_first or (is_due and group["svd"] == "full"):
            projector.begin(gradient, state, group)
        low = projector.project(gradient, state)
        self.apply(parameter, self.direction(state, low, group), state, group, group["scale"])
        # The warm subspace is for the next step, since the old one's projection begins its iteration.
        if is_due and not is_first and group["svd"] != "full":
            self.rotate_moments(state, projector.follow(gradient, low, state))

    def apply(
        self,
        parameter: torch.Tensor,
        direction: torch.Tensor,
        state: dict[str, Any],
        group: dict[str, Any],
        scale: float | None,
    ) -> None:
        """Subtract the update, then decay (AdamW's order)."""
        keep = 1 - group["lr"] * group["weight_decay"]
        self.subtract(parameter, direction, state, self.step_size(state, parameter, group), scale, keep)

    def subtract(
        self,
        parameter: torch.Tensor,
        direction: torch.Tensor,
        state: dict[str, Any],
        size: float,
        scale: float | None,
        keep: float = 1.0,
    ) -> None:
        """Subtract `size` times the direction, back from its subspace where it has one; then multiply by `keep`."""
        if scale is not None:
            projector.add_back(parameter, direction, state, -size, scale, keep)
            return
        parameter.add_(direction.to(parameter.dtype), alpha=-size)
        if keep != 1:
            parameter.mul_(keep)
