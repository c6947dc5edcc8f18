#!/usr/bin/env python3
"""Largest difference of weights after 50 steps on random problems: ours against galore-torch and lomo-optim.

GaLore runs with svd="full", which takes the same SVD and carries the moments over as galore-torch does.

    python tools/bench/optim_equal.py --problems 20
"""

from __future__ import annotations

import argparse
import random

import torch

from mudarrib.optim_extras import FusedLomo, GaLoreAdafactor, GaLoreAdamW


def galore(seed: int, steps: int, adafactor: bool) -> float:
    from galore_torch import GaLoreAdafactor as TheirAdafactor
    from galore_torch import GaLoreAdamW as TheirAdamW

    draw = random.Random(seed)
    torch.manual_seed(seed)
    shape = (draw.randint(4, 24), draw.randint(4, 24))
    kind = draw.choice(["std", "reverse_std", "right", "left"] + ([] if adafactor else ["full"]))
    low = {"rank": draw.randint(1, 6), "update_proj_gap": draw.choice([1, 5, 20]), "scale": 0.5, "proj_type": kind}
    start = torch.randn(shape)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    decay = draw.choice([0.0, 0.1])
    if adafactor:
        given = {"lr": 1e-2, "weight_decay": decay, "scale_parameter": draw.random() < 0.5, "relative_step": False}
        pair = [
            GaLoreAdafactor([{"params": [ours], **low, "svd": "full"}], **given),
            TheirAdafactor([{"params": [theirs], **low}], **given),
        ]
    else:
        given = {"lr": 1e-2, "weight_decay": decay, "betas": (0.8, 0.99)}
        pair = [
            GaLoreAdamW([{"params": [ours], **low, "svd": "full"}], **given),
            TheirAdamW([{"params": [theirs], **low}], no_deprecation_warning=True, **given),
        ]
    for _ in range(steps):
        gradient = torch.randn(shape)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        for optimizer in pair:
            optimizer.step()
    return float((ours - theirs).abs().max().detach())


def lomo(seed: int, steps: int) -> float:
    from lomo_optim import Lomo

    def model() -> torch.nn.Module:
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Tanh(), torch.nn.Linear(10, 3))

    ours, theirs = model(), model()
    fused = FusedLomo(ours.parameters(), lr=1e-2, weight_decay=0.1)
    reference = Lomo(theirs, lr=1e-2, weight_decay=0.1)
    for _ in range(steps):
        x = torch.randn(8, 6)
        fused.begin_micro_batch(is_last=True)
        ours(x).square().mean().backward()
        fused.step()
        reference.fused_backward(theirs(x).square().mean(), 1e-2)
    pairs = zip(ours.parameters(), theirs.parameters())
    return max(float((a - b).abs().max().detach()) for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(options.problems)
    print(f"GaLore AdamW     {max(galore(seed, options.steps, False) for seed in seeds):.1e}")
    print(f"GaLore Adafactor {max(galore(seed, options.steps, True) for seed in seeds):.1e}")
    print(f"LOMO             {max(lomo(seed, options.steps) for seed in seeds):.1e}")


if __name__ == "__main__":
    main()
