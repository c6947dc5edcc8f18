#!/usr/bin/env python3
"""Time of a GaLore AdamW step between refreshes, against galore-torch's and fused AdamW, on the same shapes.

Needs galore-torch beside this package. A round times every contender once, in turn; ratios are taken within a round.

    python tools/bench/optim_step.py --rounds 9
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from mudarrib.optim_extras import GaLoreAdamW

SETTINGS = {"rank": 128, "update_proj_gap": 10**9, "scale": 0.25, "proj_type": "std"}


def contenders(m: int, n: int, layers: int, rank: int) -> dict[str, torch.optim.Optimizer]:
    from galore_torch import GaLoreAdamW as Theirs

    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(m, n, generator=generator) for _ in range(layers)]

    def group() -> dict[str, object]:
        weights = [torch.nn.Parameter(torch.zeros(m, n)) for _ in range(layers)]
        for weight, gradient in zip(weights, gradients):
            weight.grad = gradient
        return {"params": weights}

    low = {**SETTINGS, "rank": rank}
    return {
        "ours": GaLoreAdamW([{**group(), **low}], lr=1e-3, weight_decay=0.01),
        "galore-torch": Theirs([{**group(), **low}], lr=1e-3, weight_decay=0.01, no_deprecation_warning=True),
        "AdamW fused": torch.optim.AdamW([group()], lr=1e-3, fused=True),
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
        ratios: dict[str, list[float]] = {"galore-torch": [], "AdamW fused": []}
        for _ in range(options.rounds):
            took = {}
            for name, optimizer in optimizers.items():
                began = time.perf_counter()
                optimizer.step()
                took[name] = time.perf_counter() - began
            for name, values in ratios.items():
                values.append(took["ours"] / took[name])
        for name, values in ratios.items():
            spread = f"({min(values):.3f} to {max(values):.3f})"
            print(f"{shape:>10}  ours / {name:13} {statistics.median(values):.3f}  {spread}")


if __name__ == "__main__":
    main()
