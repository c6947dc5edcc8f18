"""Norms of large tensors in float32."""

from __future__ import annotations

import torch


def euclidean(tensor: torch.Tensor) -> torch.Tensor:
    """The root of the sum of squares, in float32, without a copy of the tensor.

    Taken over the last axis first: torch's norm adds up all squares in float32 one after the other, which over a
    hundred million entries loses more than a hundredth.
    """
    lengths = torch.linalg.vector_norm(tensor, dim=-1, dtype=torch.float32) if tensor.dim() > 1 else tensor
    total: torch.Tensor = torch.linalg.vector_norm(lengths, dtype=torch.float32)
    return total


def root_mean_square(tensor: torch.Tensor) -> torch.Tensor:
    """√(mean of squares), in float32."""
    mean: torch.Tensor = euclidean(tensor) / tensor.numel() ** 0.5
    return mean
