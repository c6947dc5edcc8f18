"""The subspace of a gradient: exactly by SVD, or fast from where it was."""

from __future__ import annotations

import torch


def exact(gradient: torch.Tensor, rank: int, right: bool) -> torch.Tensor:
    """The leading singular vectors, by torch's SVD in float32.

    Args:
        gradient: Shape (m, n).
        rank: Number of vectors; above min(m, n) all of them.
        right: Right singular vectors, shape (n, rank), else left ones, shape (m, rank).
    """
    left_vectors, _, right_vectors = torch.linalg.svd(gradient.float(), full_matrices=False)
    basis: torch.Tensor = right_vectors[:rank].T if right else left_vectors[:, :rank]
    return basis


def oriented(matrix: torch.Tensor) -> torch.Tensor:
    """An orthonormal basis of the columns, the diagonal of its triangular factor positive.

    So the basis is a continuous function of the matrix: where the columns hardly move, it hardly moves.
    """
    orthonormal, triangle = torch.linalg.qr(matrix)
    basis: torch.Tensor = orthonormal * torch.where(torch.diagonal(triangle) < 0, -1.0, 1.0)
    return basis


def first(gradient: torch.Tensor, rank: int, right: bool, iterations: int = 2) -> torch.Tensor:
    """A basis close to the leading singular vectors, from random ones (arXiv 0909.4061, algorithm 4.4).

    The random start is the same for each shape, so that a run can be repeated.
    """
    gradient = gradient.float() if right else gradient.float().T
    columns = gradient.shape[1]
    rank = min(rank, *gradient.shape)
    generator = torch.Generator().manual_seed(columns)
    basis = torch.randn(columns, min(rank + 8, columns), generator=generator).to(gradient.device)
    for _ in range(iterations):
        basis = oriented(gradient.T @ (gradient @ basis))
    # The leading vectors within the wider basis.
    small = gradient @ basis
    _, _, inner = torch.linalg.svd(small.T @ small)
    return oriented(basis @ inner[:rank].T)


def warm(gradient: torch.Tensor, basis: torch.Tensor, right: bool) -> torch.Tensor:
    """One step of subspace iteration from the old basis: the new one where the gradient's energy is now.

    Args:
        gradient: Shape (m, n).
        basis: Shape (n, rank) if `right`, else (m, rank).
        right: The side.
    """
    gradient = gradient.float() if right else gradient.float().T
    moved = gradient.T @ (gradient @ basis.float())
    scale = moved.abs().amax()
    # A vanished or broken gradient says nothing about where to go.
    if not torch.isfinite(scale) or scale == 0:
        return basis.float()
    return oriented(moved / scale)


def captured_energy(gradient: torch.Tensor, basis: torch.Tensor, right: bool) -> float:
    """Share of the gradient's squared norm that lies in the subspace, 0 to 1."""
    gradient = gradient.float() if right else gradient.float().T
    return float((gradient @ basis.float()).square().sum() / gradient.square().sum())
