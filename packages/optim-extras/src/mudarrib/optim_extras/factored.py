"""The factored second moment of Adafactor (arXiv 1804.04235, algorithm 4), which AdaLomo shares."""

from __future__ import annotations

from typing import Any

import torch

from .norms import root_mean_square

ROUNDING = 32 * torch.finfo(torch.float32).eps


def mean_square(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Mean of the squares along a dimension, without a copy of the tensor."""
    norm: torch.Tensor = torch.linalg.vector_norm(tensor, dim=dim)
    return norm.square_().div_(tensor.shape[dim])


class FactoredSecondMoment:
    """Row and column means of the squared gradient for matrices (the last two axes), all of it for vectors."""

    @staticmethod
    def shapes(shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the means for a gradient of this shape."""
        if len(shape) < 2:
            return {"exp_avg_sq": shape}
        return {"exp_avg_sq_row": shape[:-1], "exp_avg_sq_col": (*shape[:-2], shape[-1])}

    @staticmethod
    def normalised(
        state: dict[str, Any], gradient: torch.Tensor, step: int, decay_rate: float, eps: float, threshold: float
    ) -> torch.Tensor:
        """The gradient over the root of its second moment, its root mean square at most `threshold`.

        Args:
            state: Holds `exp_avg_sq_row` and `exp_avg_sq_col`, or `exp_avg_sq`; filled at first use.
            gradient: In float32.
            step: From 1; the second moment decays by 1 - step^decay_rate.
            decay_rate: Below 0.
            eps: Added to the squared gradient.
            threshold: Largest root mean square of the result.
        """
        beta2 = 1.0 - step**decay_rate
        update: torch.Tensor
        if gradient.dim() >= 2:
            rows, columns = (mean_square(gradient, dim).add_(eps) for dim in (-1, -2))
            row = state.setdefault("exp_avg_sq_row", torch.zeros_like(rows))
            column = state.setdefault("exp_avg_sq_col", torch.zeros_like(columns))
            row.mul_(beta2).add_(rows, alpha=1 - beta2)
            column.mul_(beta2).add_(columns, alpha=1 - beta2)
            scale = (row / row.mean(dim=-1, keepdim=True)).rsqrt_().unsqueeze(-1)
            update = (gradient * scale).mul_(column.rsqrt().unsqueeze(-2))
        else:
            # Entries within the rounding error of a sum as large as the largest are noise, which must not become
            # full-sized steps: the gradient of an attention key's bias is zero but for rounding.
            squared = gradient.square().add_(eps + (ROUNDING * gradient.abs().amax()).square())
            moment = state.setdefault("exp_avg_sq", torch.zeros_like(squared))
            moment.mul_(beta2).add_(squared, alpha=1 - beta2)
            update = gradient * moment.rsqrt()
        update.div_((root_mean_square(update) / threshold).clamp_(min=1.0))
        return update
