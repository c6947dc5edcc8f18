#!/usr/bin/env python3
"""Cost of finding GaLore's subspace anew: warm iteration against the exact SVD and against fused AdamW steps.

Every round times each of the three once on the same gradient, which drifts from round to round; the ratios are taken
within a round, and their median, least and greatest are shown. Energy is the share of the best possible that the warm
basis captures. The SVD of the largest shapes takes seconds: choose --shapes and --rounds accordingly.

    python tools/bench/optim_refresh.py --rounds 5
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from mudarrib.optim_extras.galore import subspace


def drifting(m: int, n: int, generator: torch.Generator) -> Callable[[], torch.Tensor]:
    """Gradients whose singular values fall like a power law and whose leading vectors turn a little each time."""
    left = torch.randn(m, min(m, n), generator=generator)
    right = torch.randn(min(m, n), n, generator=generator)
    falling = torch.arange(1, min(m, n) + 1).pow(-1.0)

    def draw() -> torch.Tensor:
        left.add_(torch.randn(left.shape, generator=generator), alpha=0.1)
        return (left * falling) @ right / m

    return draw


def seconds(call: Callable[..., object], *given: object) -> float:
    began = time.perf_counter()
    call(*given)
    return time.perf_counter() - began


def measure(m: int, n: int, rank: int, rounds: int) -> dict[str, list[float]]:
    draw = drifting(m, n, torch.Generator().manual_seed(0))
    weight = torch.nn.Parameter(torch.zeros(m, n))
    weight.grad = torch.randn(m, n)
    adamw = torch.optim.AdamW([weight], fused=True)
    adamw.step()
    right = m >= n
    basis = subspace.first(draw(), rank, right)
    found: dict[str, list[float]] = {"svd / warm": [], "warm / AdamW": [], "energy / best": []}
    for _ in range(rounds):
        gradient = draw()
        warm = min(seconds(subspace.warm, gradient, basis, right) for _ in range(3))
        step = min(seconds(adamw.step) for _ in range(5))
        svd = seconds(subspace.exact, gradient, rank, right)
        basis = subspace.warm(gradient, basis, right)
        best = torch.linalg.svdvals(gradient)[:rank].square().sum() / gradient.square().sum()
        found["svd / warm"].append(svd / warm)
        found["warm / AdamW"].append(warm / step)
        found["energy / best"].append(subspace.captured_energy(gradient, basis, right) / float(best))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["768x768", "768x3072", "2048x5632"])
    parser.add_argument("--rank", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for shape in options.shapes:
        m, n = map(int, shape.split("x"))
        for name, values in measure(m, n, options.rank, options.rounds).items():
            print(f"{shape:>10}  {name:14} {statistics.median(values):9.4f}  ({min(values):.4f} to {max(values):.4f})")


if __name__ == "__main__":
    main()
