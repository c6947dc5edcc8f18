"""The subspace of a gradient: exactly by SVD, or fast from where it was."""

from __future__ import annotations

import torch

from ..norms import euclidean

ITERATIONS = 4
# Iterations end where the basis holds ENOUGH of the energy, as asked of about so many rows of the gradient, or where
# the last one gained less than what is WORTHWHILE.
ENOUGH = 0.995
WORTHWHILE = 0.001
ROWS_ASKED = 32


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
    reflectors, scales = torch.geqrf(matrix)
    signs = torch.where(torch.diagonal(reflectors) < 0, -1.0, 1.0)
    basis: torch.Tensor = torch.linalg.householder_product(reflectors, scales).mul_(signs)
    return basis


def first(gradient: torch.Tensor, rank: int, right: bool) -> torch.Tensor:
    """A basis close to the leading singular vectors, from random ones (arXiv 0909.4061, algorithm 4.4).

    The random start is the same for each shape, so that a run can be repeated.
    """
    columns = gradient.shape[1 if right else 0]
    generator = torch.Generator().manual_seed(columns)
    start = oriented(torch.randn(columns, min(rank, *gradient.shape), generator=generator))
    return warm(gradient, start.to(gradient.device), right)


def warm(gradient: torch.Tensor, basis: torch.Tensor, right: bool, product: torch.Tensor | None = None) -> torch.Tensor:
    """Subspace iteration from the old basis: the new one where the gradient's energy is now.

    One iteration; where it leaves out more than a few thousandths of the energy a second, and up to four while that
    helps. From the second on the squares of the singular values are shifted down by half the least one that is
    followed, which sends what lies outside of the subspace away about twice as fast (arXiv 2404.09276).

    Args:
        gradient: Shape (m, n).
        basis: Shape (n, rank) if `right`, else (m, rank).
        right: The side.
        product: The float32 gradient times the old basis, where it is known already: shape (m, rank) if `right`,
            else (n, rank).
    """
    gradient = gradient.float() if right else gradient.float().T
    basis = basis.float()
    some_rows = gradient[:: max(1, len(gradient) // ROWS_ASKED)].contiguous()
    held = 0.0
    for _ in range(ITERATIONS):
        product = gradient @ basis if product is None else product
        moved = (product.T @ gradient).T  # in columns, as the decomposition wants it
        if held:
            # Not in the first iteration: an old basis does not tell yet how large the squares are here.
            moved.sub_(basis * torch.linalg.vector_norm(product, dim=0).amin().square().div_(2))
        scale = torch.linalg.vector_norm(moved)
        # A vanished or broken gradient says nothing about where to go.
        if not torch.isfinite(scale) or scale == 0:
            break
        basis = oriented(moved.div_(scale))
        before, held = held, share(some_rows, basis)
        if held >= ENOUGH or held - before < WORTHWHILE:
            break
        product = None
    return basis


def share(rows: torch.Tensor, basis: torch.Tensor) -> float:
    """Share of the rows' squared norm that lies in the span of the basis, 0 to 1."""
    return float((euclidean(rows @ basis) / euclidean(rows)).square())


def captured_energy(gradient: torch.Tensor, basis: torch.Tensor, right: bool) -> float:
    """Share of the gradient's squared norm that lies in the subspace, 0 to 1."""
    return share(gradient.float() if right else gradient.float().T, basis.float())
