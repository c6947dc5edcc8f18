"""What GaLore's optimizers share: the subspace of each target, and the plain rule for the rest."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import torch

from ..checks import Shapes
from ..exact_state import PerParameter
from . import projector

logger: logging.Logger = logging.getLogger(__name__)
QUIET_S = 2.0
LOW_RANK: dict[str, object] = {"update_proj_gap": 200, "scale": 0.25, "proj_type": "std", "svd": "warm"}


class Decomposing:
    """Says how far the decompositions of one step are, while they take longer than two seconds."""

    def __init__(self) -> None:
        self.step: int = -1
        self.done: int = 0
        self.told_at: float = 0.0

    def next(self, step: int, total: int) -> None:
        """Another of at most `total` matrices is decomposed at this step."""
        now = time.monotonic()
        if step != self.step:
            self.step, self.done, self.told_at = step, 0, now
        elif now - self.told_at > QUIET_S:
            self.told_at = now
            logger.info("Decomposing gradients: %d of %d matrices are done", self.done, total)
        self.done += 1


class LowRankOptimizer(PerParameter):
    """Parameter groups with a `rank` are updated in a subspace of their gradients, the others as usual.

    A group may set `rank`, `update_proj_gap` (steps between subspaces), `scale`, `proj_type` and `svd`: "warm"
    follows the subspace from the old basis, for the next step on, and carries the moments over by the rotation
    between the two; "full" takes the exact SVD and leaves the moments as they are, which is the paper's rule and
    depends on the signs that the SVD happens to return.
    """

    low_rank: Mapping[str, Any] = LOW_RANK

    def _prepare(self) -> None:
        super()._prepare()
        self._places: dict[torch.Tensor, int] = {}
        self._decomposing: Decomposing = Decomposing()

    def _take(self, group: dict[str, Any]) -> None:
        super()._take(group)
        if group.get("rank"):
            for parameter in group["params"]:
                self._places[parameter] = len(self._places)

    def _settings(self) -> tuple[str, ...]:
        return (*super()._settings(), "rank", *self.low_rank)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if param_group.get("rank"):
            param_group = {**self.low_rank, **param_group}
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        given = [dict(group) for group in self.param_groups]
        super().load_state_dict(state_dict)
        for mine, group in zip(given, self.param_groups, strict=True):
            for name in ("rank", *self.low_rank):
                if mine.get(name) != group.get(name):
                    logger.warning(
                        "%s = %r, as in the loaded state; the %r given is not used: start anew to change it.",
                        name, group.get(name), mine.get(name),
                    )  # fmt: skip

    def _state_shapes(self, parameter: torch.Tensor, group: dict[str, Any]) -> Shapes:
        shape = tuple(parameter.shape)
        if not group.get("rank"):
            return self._moment_shapes(shape)
        low, bases = projector.shapes(shape, group["rank"], group["proj_type"])
        return {**bases, **self._moment_shapes(low)}

    def _moment_shapes(self, shape: tuple[int, ...]) -> Shapes:
        """Names and shapes of the moments of a gradient of this shape, in its subspace where it has one."""
        raise NotImplementedError

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
            self._decomposing.next(state["step"], len(self._places))
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
