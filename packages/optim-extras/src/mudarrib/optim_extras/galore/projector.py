"""A gradient in its subspace and back (GaLore, arXiv 2403.03507, algorithm 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import OptionError
from . import subspace

SIDES = ("left", "right")


def sides(shape: Sequence[int], proj_type: str) -> tuple[str, ...]:
    """On which sides a gradient of this shape is projected: ("right",), ("left",) or both.

    Raises:
        OptionError: `proj_type` is unknown.
    """
    tall = shape[0] >= shape[1]
    choices = {
        "std": ("right",) if tall else ("left",),
        "reverse_std": ("left",) if tall else ("right",),
        "right": ("right",),
        "left": ("left",),
        "full": SIDES,
    }
    if proj_type not in choices:
        raise OptionError("option proj_type", proj_type, f"give one of {', '.join(choices)}")
    return choices[proj_type]


def shapes(shape: Sequence[int], rank: int, proj_type: str) -> tuple[tuple[int, int], dict[str, tuple[int, int]]]:
    """Shape of a gradient in its subspace, and the shapes of its bases by their names in the state."""
    low, rank, bases = list(shape), min(rank, *shape), {}
    for side in sides(shape, proj_type):
        place = SIDES.index(side)
        bases[f"basis_{side}"] = (shape[place], rank)
        low[place] = rank
    return (low[0], low[1]), bases


def is_due(state: dict[str, Any], group: dict[str, Any]) -> bool:
    """Whether the subspace is to be found anew at this step; spread over the steps unless the SVD is exact."""
    offset = 0 if group["svd"] == "full" else state["offset"]
    step: int = state["step"]
    return step == 0 or (step - offset) % group["update_proj_gap"] == 0


def begin(gradient: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """Find the subspace of this gradient from nothing: by the SVD where it is to be exact."""
    find = subspace.exact if group["svd"] == "full" else subspace.first
    for side in sides(gradient.shape, group["proj_type"]):
        basis = find(gradient, group["rank"], side == "right")
        state[f"basis_{side}"] = basis.to(gradient.dtype).contiguous()


def follow(gradient: torch.Tensor, low: torch.Tensor, state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Move the subspace to where this gradient's energy is; returns the rotation from old to new for each side.

    Args:
        gradient: Shape (m, n).
        low: The gradient in the old subspace: on one side the first product of the iteration, already made.
        state: Holds the bases.
    """
    rotations = {}
    present = [side for side in SIDES if f"basis_{side}" in state]
    for side in present:
        right = side == "right"
        old = state[f"basis_{side}"]
        product = (low if right else low.T) if len(present) == 1 and low.dtype == torch.float32 else None
        new = subspace.warm(gradient, old, right, product)
        rotations[side] = old.float().T @ new
        state[f"basis_{side}"] = new.to(gradient.dtype).contiguous()
    return rotations


def rotate(moment: torch.Tensor, rotations: dict[str, torch.Tensor], squared: bool = False) -> torch.Tensor:
    """A moment in the old basis as seen from the new one; a second moment by the squares of the rotation."""
    for side, rotation in rotations.items():
        matrix = (rotation.square() if squared else rotation).to(moment.dtype)
        moment = moment @ matrix if side == "right" else matrix.T @ moment
    return moment


def project(gradient: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
    """The gradient in its subspace: G Q, Pᵀ G, or Pᵀ G Q."""
    low = gradient
    if "basis_left" in state:
        low = state["basis_left"].T @ low
    if "basis_right" in state:
        low = low @ state["basis_right"]
    return low


def add_back(
    parameter: torch.Tensor, low: torch.Tensor, state: dict[str, Any], size: float, scale: float, keep: float = 1.0
) -> None:
    """Add size · scale times the update, back from its subspace (N Qᵀ, P N, or P N Qᵀ), then decay by `keep`."""
    left, right = state.get("basis_left"), state.get("basis_right")
    if left is None:
        first, second = low, right.T  # type: ignore[union-attr]  # there is one side at least
    elif right is None:
        first, second = left, low
    else:
        first, second = left.to(low.dtype) @ low, right.T
    if parameter.dtype == torch.float32:
        # One pass over the weights for update and decay.
        parameter.addmm_(first, second, beta=keep, alpha=size * scale * keep)
        return
    # In low precision the parameter is rounded once, by the type of the moments.
    parameter.add_((first.to(low.dtype) @ second.to(low.dtype) * scale).to(parameter.dtype), alpha=size)
    if keep != 1:
        parameter.mul_(keep)
