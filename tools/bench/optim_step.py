#!/usr/bin/env python3
"""Time of a GaLore AdamW step between refreshes, against galore-torch's and fused AdamW, on the same shapes.

Needs galore-torch beside this package. A round times every contender once, in turn; ratios are taken within a
round, on the processor's clock, so that other work on the machine hardly counts.
"Two products" are the projection and the way back alone, which no step can do without: its ratio to galore-torch's step
is the least that is possible.

    python tools/bench/optim_step.py --rounds 9
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from mudarrib.optim_extras import GaLoreAdamW

SETTINGS = {"rank": 128, "update_proj_gap": 10**9, "scale": 0.25, "proj_type": "std"}


class TwoProducts:
    """The matrix products of a step, and nothing else."""

    def __init__(self, weights: list[torch.nn.Parameter], rank: int) -> None:
        self.pairs = [(weight, torch.randn(min(weight.shape), rank)) for weight in weights]

    @torch.no_grad()
    def step(self) -> None:
        for weight, basis in self.pairs:
            if weight.shape[0] >= weight.shape[1]:
                weight.addmm_(weight.grad @ basis, basis.T, alpha=-1e-6)
            else:
                weight.addmm_(basis, basis.T @ weight.grad, alpha=-1e-6)


def contenders(m: int, n: int, layers: int, rank: int) -> dict[str, torch.optim.Optimizer]:
    from galore_torch import GaLoreAdamW as Theirs

    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(m, n, generator=generator) for _ in range(layers)]

    def group() -> dict[str, list[torch.nn.Parameter]]:
        weights = [torch.nn.Parameter(torch.zeros(m, n)) for _ in range(layers)]
        for weight, gradient in zip(weights, gradients):
            weight.grad = gradient
        return {"params": weights}

    low = {**SETTINGS, "rank": rank}
    return {
        "ours": GaLoreAdamW([{**group(), **low}], lr=1e-3, weight_decay=0.01),
        "galore-torch": Theirs([{**group(), **low}], lr=1e-3, weight_decay=0.01, no_deprecation_warning=True),
        "AdamW fused": torch.optim.AdamW([group()], lr=1e-3, fused=True),
        "two products": TwoProducts(group()["params"], rank),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["768x768", "768x3072", "2048x5632"])
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--rank", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for shape in options.shapes:
        m, n = map(int, shape.split("x"))
        optimizers = contenders(m, n, options.layers, options.rank)
        for optimizer in optimizers.values():
            optimizer.step()  # the first subspace
        pairs = [("ours", "galore-torch"), ("two products", "galore-torch"), ("ours", "AdamW fused")]
        ratios: dict[tuple[str, str], list[float]] = {pair: [] for pair in pairs}
        for _ in range(options.rounds):
            took = {}
            for name, optimizer in optimizers.items():
                began = time.process_time()
                optimizer.step()
                took[name] = time.process_time() - began
            for (one, other), values in ratios.items():
                values.append(took[one] / took[other])
        for (one, other), values in ratios.items():
            spread = f"({min(values):.3f} to {max(values):.3f})"
            print(f"{shape:>10}  {one:>12} / {other:13} {statistics.median(values):.3f}  {spread}")


if __name__ == "__main__":
    main()
