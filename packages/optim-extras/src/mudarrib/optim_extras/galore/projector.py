"""A gradient in its subspace and back (GaLore, arXiv 2403.03507, algorithm 2)."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import OptionError
from . import subspace

SIDES = ("left", "right")


def sides(shape: torch.Size, proj_type: str) -> tuple[str, ...]:
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


def is_due(state: dict[str, Any], group: dict[str, Any]) -> bool:
    """Whether the subspace is to be found anew at this step; spread over the steps unless the SVD is exact."""
    offset = 0 if group["svd"] == "full" else state.get("offset", 0)
    return "step" not in state or (state["step"] - offset) % group["update_proj_gap"] == 0 or state["step"] == 0


def refresh(gradient: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Find the subspace anew; returns for each side the rotation from the old basis to the new, if there is one."""
    rotations = {}
    for side in sides(gradient.shape, group["proj_type"]):
        key, right = f"basis_{side}", side == "right"
        old = state.get(key)
        if group["svd"] == "full":
            new = subspace.exact(gradient, group["rank"], right)
        elif old is None:
            new = subspace.first(gradient, group["rank"], right)
        else:
            new = subspace.warm(gradient, old, right)
        if old is not None and group["svd"] != "full":
            rotations[side] = old.float().T @ new
        state[key] = new.to(gradient.dtype).contiguous()
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
