"""GaLore with AdamW and moments in 8 bits."""

from __future__ import annotations

from typing import Any

import torch

from .. import blockwise_8bit as eight
from ..checks import Shapes
from ..fused_backward import FusedBackward
from . import projector
from .adamw import GaLoreAdamW

MOMENTS = (("exp_avg", True), ("exp_avg_sq", False))


class GaLoreAdamW8bit(GaLoreAdamW):
    """GaLore AdamW whose moments are stored in 8 bits, blockwise; the arithmetic is float32.

    The arguments are those of `GaLoreAdamW`.
    """

    def is_elementwise(self, group: dict[str, Any]) -> bool:
        return False

    def _moment_shapes(self, shape: tuple[int, ...]) -> Shapes:
        return {name: size for moment, _ in MOMENTS for name, size in eight.shapes(moment, shape).items()}

    def direction(self, state: dict[str, Any], gradient: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        wide = {"step": state["step"], "shape": gradient.shape}
        for name, signed in MOMENTS:
            wide[name] = eight.fetch(state, name, gradient.shape, gradient.device, signed)
        update = super().direction(wide, gradient, group)
        state["step"] = wide["step"]
        state["shape"] = tuple(gradient.shape)
        for name, signed in MOMENTS:
            eight.store(state, name, wide[name], signed)
        return update

    def rotate_moments(self, state: dict[str, Any], rotations: dict[str, torch.Tensor]) -> None:
        if "shape" not in state:
            return
        device = next(iter(rotations.values())).device
        for name, signed in MOMENTS:
            moment = eight.fetch(state, name, torch.Size(state["shape"]), device, signed)
            eight.store(state, name, projector.rotate(moment, rotations, squared=not signed), signed)


class GaLoreAdamW8bitLayerwise(FusedBackward, GaLoreAdamW8bit):
    """GaLore AdamW in 8 bits that updates each layer inside the backward pass."""
