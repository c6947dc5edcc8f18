#!/usr/bin/env python3
"""Energy that GaLore's warm subspaces capture of real gradients, against the best possible.

A small language model learns to predict the bytes of real text, with GaLore AdamW on its blocks. Whenever a layer
has found its subspace anew from an old one, the share of that gradient's squared norm which the new basis holds is
divided by the share that the leading singular vectors hold. Shown are the median, mean and least of these, beside
the same for the old basis and for a single iteration from it, and how many iterations were made.

    python tools/bench/optim_energy.py --steps 300
"""

from __future__ import annotations

import argparse
import collections
import statistics

import torch
from optim_loss import TEXT, Model, make_optimizer

from mudarrib.optim_extras.galore import projector, subspace


class Watch:
    """Stands in for the function that follows a subspace; keeps what each refresh came to."""

    def __init__(self, rank: int) -> None:
        self.rank, self.follow = rank, projector.follow
        self.shares: dict[str, list[float]] = {"old basis": [], "one iteration": [], "ours": []}
        self.iterations: collections.Counter[int] = collections.Counter()

    def __call__(self, gradient: torch.Tensor, low: torch.Tensor, state: dict) -> dict[str, torch.Tensor]:
        (side,) = [side for side in projector.SIDES if f"basis_{side}" in state]
        right, old = side == "right", state[f"basis_{side}"]
        squares = torch.linalg.svdvals(gradient).square()
        best = float(squares[: self.rank].sum() / squares.sum())
        once = subspace.oriented(gradient.T @ (gradient @ old) if right else gradient @ (gradient.T @ old))
        steps, iterate = [], subspace.oriented
        subspace.oriented = lambda matrix: steps.append(1) or iterate(matrix)
        rotations = self.follow(gradient, low, state)
        subspace.oriented = iterate
        self.iterations[len(steps)] += 1
        for name, basis in zip(self.shares, (old, once, state[f"basis_{side}"])):
            self.shares[name].append(subspace.captured_energy(gradient, basis, right) / best)
        return rotations


def train(options: argparse.Namespace) -> None:
    torch.manual_seed(options.seed)
    text = torch.tensor(list(TEXT.read_bytes()))
    model = Model(options.width, options.layers, options.length)
    optimizer = make_optimizer("warm", model, options)
    for _ in range(options.steps):
        starts = torch.randint(len(text) - options.length - 1, (options.batch,))
        rows = torch.stack([text[start : start + options.length + 1] for start in starts])
        loss = torch.nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"{options.steps} steps of {options.batch * options.length} tokens, last loss {float(loss.detach()):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--gap", type=int, default=50)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--lr", type=float, default=4e-3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    projector.follow = watch = Watch(options.rank)
    train(options)
    for name, shares in watch.shares.items():
        spread = f"median {statistics.median(shares):.5f}  mean {statistics.mean(shares):.5f}  least {min(shares):.5f}"
        print(f"{name:14} {spread}   ({len(shares)} refreshes)")
    print("iterations:", ", ".join(f"{count} x {number}" for number, count in sorted(watch.iterations.items())))


if __name__ == "__main__":
    main()
