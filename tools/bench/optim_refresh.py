#!/usr/bin/env python3
"""Cost of finding GaLore's subspace anew, against the exact SVD and against fused AdamW steps.

Timed, on the processor's clock, are the iteration from the old basis, which begins with the projection that the step
has made anyway, and the whole of what a refresh adds to a step, the carrying over of the moments included. Every
round does each for --layers matrices of one shape, then as many fused AdamW steps, then one SVD; the ratios, for one
matrix, are taken within a round, and their median, least and greatest are shown. Energy is the share of the best
possible that the new basis captures. The gradients are synthetic, with a spectrum that falls like a power law and
drifts from round to round; optim_energy.py asks the same of real ones. The SVD of the largest shapes takes seconds:
choose --shapes and --rounds accordingly.

    python tools/bench/optim_refresh.py --rounds 5
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from mudarrib.optim_extras import GaLoreAdamW
from mudarrib.optim_extras.galore import projector, subspace


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
    began = time.process_time()
    call(*given)
    return time.process_time() - began


def made(build: Callable[..., torch.optim.Optimizer], m: int, n: int, layers: int, **settings: object):
    """An optimizer over matrices of zeros, whose gradients are of that shape."""
    weights = [torch.nn.Parameter(torch.zeros(m, n)) for _ in range(layers)]
    for weight in weights:
        weight.grad = torch.randn(m, n)
    return build([{"params": weights, **settings}])


@torch.no_grad()
def find(galore: GaLoreAdamW, weights: list[torch.nn.Parameter], lows: list[torch.Tensor]) -> None:
    for weight, low in zip(weights, lows):
        right = "basis_right" in galore.state[weight]
        basis = galore.state[weight]["basis_right" if right else "basis_left"]
        subspace.warm(weight.grad, basis, right, low if right else low.T)


@torch.no_grad()
def refresh(galore: GaLoreAdamW, weights: list[torch.nn.Parameter], lows: list[torch.Tensor]) -> None:
    for weight, low in zip(weights, lows):
        state = galore.state[weight]
        galore.rotate_moments(state, projector.follow(weight.grad, low, state))


def measure(m: int, n: int, options: argparse.Namespace) -> dict[str, list[float]]:
    rank, right = options.rank, m >= n
    draw = drifting(m, n, torch.Generator().manual_seed(0))
    adamw = made(lambda groups: torch.optim.AdamW(groups, fused=True), m, n, options.layers)
    adamw.step()
    galore = made(GaLoreAdamW, m, n, options.layers, rank=rank, update_proj_gap=10**9)
    weights = galore.param_groups[0]["params"]
    names = ("svd / new basis", "new basis / AdamW step", "whole refresh / AdamW step", "energy / best")
    found: dict[str, list[float]] = {name: [] for name in names}
    for round_number in range(options.rounds + 1):
        gradient = draw()
        for weight in weights:
            weight.grad = gradient.clone()
        galore.step()  # the first finds the first subspace
        if round_number == 0:
            continue
        lows = [projector.project(weight.grad, galore.state[weight]) for weight in weights]
        took = seconds(find, galore, weights, lows)
        whole = seconds(refresh, galore, weights, lows)
        step = seconds(adamw.step)
        svd = seconds(subspace.exact, gradient, rank, right)
        found["svd / new basis"].append(svd / took * options.layers)
        found["new basis / AdamW step"].append(took / step)
        found["whole refresh / AdamW step"].append(whole / step)
        basis = galore.state[weights[0]]["basis_right" if right else "basis_left"]
        squares = torch.linalg.svdvals(gradient).square()
        best = float(squares[:rank].sum() / squares.sum())
        found["energy / best"].append(subspace.captured_energy(gradient, basis, right) / best)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["768x768", "768x3072", "2048x5632"])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rank", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for shape in options.shapes:
        m, n = map(int, shape.split("x"))
        for name, values in measure(m, n, options).items():
            spread = f"({min(values):.4f} to {max(values):.4f})"
            print(f"{shape:>10}  {name:26} {statistics.median(values):9.4f}  {spread}")


if __name__ == "__main__":
    main()
