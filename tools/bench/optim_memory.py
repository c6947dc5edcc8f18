#!/usr/bin/env python3
"""Peak memory and time of a training step on a stack of feed-forward blocks, by optimizer, on the CPU.

Memory: the greatest sum of live allocations during three steps, beyond what lay there before the first, from torch's
own record of allocations. Time: the median of --rounds interleaved steps, as a ratio to plain SGD's. lomo-optim
is compared where it is installed.

    python tools/bench/optim_memory.py --layers 4 8 16
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch.profiler import ProfilerActivity, profile

from mudarrib.optim_extras import FusedAdaLomo, FusedLomo, GaLoreAdamWLayerwise

OURS = {"lomo": FusedLomo, "adalomo": FusedAdaLomo}


def make_model(layers: int, width: int) -> torch.nn.Module:
    torch.manual_seed(0)
    up_and_down = lambda: (torch.nn.Linear(width, 4 * width), torch.nn.SiLU(), torch.nn.Linear(4 * width, width))
    return torch.nn.Sequential(*(module for _ in range(layers) for module in up_and_down()))


def stepper(name: str, model: torch.nn.Module, width: int) -> Callable[[], None]:
    """One training step, the whole of it."""
    x = torch.randn(8, width)
    parameters = list(model.parameters())
    if name == "lomo-optim":
        from lomo_optim import Lomo

        theirs = Lomo(model, lr=1e-4)
        return lambda: theirs.fused_backward(model(x).square().mean(), 1e-4)
    if name in ("lomo", "adalomo", "galore layerwise"):
        matrices = [p for p in parameters if p.dim() == 2]
        groups = [{"params": matrices, "rank": 32}, {"params": [p for p in parameters if p.dim() < 2]}]
        ours = GaLoreAdamWLayerwise(groups) if name == "galore layerwise" else OURS[name](parameters, lr=1e-4)

        def inside() -> None:
            ours.begin_micro_batch(True)
            model(x).square().mean().backward()
            ours.step()

        return inside
    optimizer = torch.optim.AdamW(parameters, lr=1e-4) if name == "AdamW" else torch.optim.SGD(parameters, lr=1e-4)

    def plain() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return plain


def peak(step: Callable[[], None]) -> int:
    """Bytes: the greatest sum of what was allocated and not yet freed, from the first step on."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        for _ in range(3):
            step()
    alive = most = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            alive += event.nbytes()
            most = max(most, alive)
    return most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = ["SGD", "AdamW", "lomo", "adalomo", "galore layerwise"]
    if find_spec("lomo_optim"):
        names.append("lomo-optim")
    for layers in options.layers:
        models = {name: make_model(layers, options.width) for name in names}
        weights = sum(p.numel() * p.element_size() for p in models["SGD"].parameters())
        steps = {name: stepper(name, models[name], options.width) for name in names}
        peaks = {name: peak(step) for name, step in steps.items()}
        took: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(options.rounds):
            for name, step in steps.items():
                began = time.perf_counter()
                step()
                took[name].append(time.perf_counter() - began)
        print(f"{layers} blocks, {len(list(models['SGD'].parameters()))} tensors, weights {weights / 2**20:.1f} MiB")
        for name in names:
            ratio = statistics.median(a / b for a, b in zip(took[name], took["SGD"]))
            print(f"  {name:17} extra peak {peaks[name] / 2**20:7.2f} MiB   time {ratio:.2f} x SGD's")


if __name__ == "__main__":
    main()
