#!/usr/bin/env python3
"""Loss of a small language model on real text: GaLore with its fast subspace against the exact SVD, at equal steps.

The model reads bytes. Each contender starts from the same weights and sees the same batches; shown are the mean loss of
the last 30 steps, its ratio to that of the exact SVD, and the first step and the slowest after it as multiples of the
median, in time of the processor, so that other work on the machine hardly counts.

    python tools/bench/optim_loss.py --steps 300 --seeds 0 1 2
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch

from mudarrib.optim_extras import GaLoreAdamW

TEXT = Path(__file__).resolve().parents[1] / "demo_data" / "topics_train.csv"
CONTENDERS = {"AdamW": None, "svd=full": "full", "svd=warm": "warm"}


class Model(torch.nn.Module):
    def __init__(self, width: int, layers: int, length: int = 64) -> None:
        super().__init__()
        self.embeddings = torch.nn.Embedding(256, width)
        self.places = torch.nn.Embedding(length, width)
        block = lambda: torch.nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.blocks = torch.nn.ModuleList(block() for _ in range(layers))
        self.head = torch.nn.Linear(width, 256)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embeddings(ids) + self.places.weight[: ids.shape[1]]
        mask = torch.nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        for block in self.blocks:
            hidden = block(hidden, src_mask=mask, is_causal=True)
        return self.head(hidden)


def make_optimizer(svd: str | None, model: Model, options: argparse.Namespace) -> torch.optim.Optimizer:
    if svd is None:
        return torch.optim.AdamW(model.parameters(), lr=options.lr / 4)
    low = {"rank": options.rank, "update_proj_gap": options.gap, "scale": 0.25, "svd": svd}
    targets = [weight for name, weight in model.blocks.named_parameters() if weight.dim() == 2]
    chosen = {id(weight) for weight in targets}
    rest = [weight for weight in model.parameters() if id(weight) not in chosen]
    return GaLoreAdamW([{"params": targets, **low}, {"params": rest, "lr": options.lr / 4}], lr=options.lr)


def train(svd: str | None, seed: int, options: argparse.Namespace) -> tuple[float, float, float]:
    torch.manual_seed(seed)
    text = torch.tensor(list(TEXT.read_bytes()))
    model = Model(options.width, options.layers)
    optimizer = make_optimizer(svd, model, options)
    losses, times = [], []
    for _ in range(options.steps):
        began = time.process_time()
        starts = torch.randint(len(text) - 65, (16,))
        rows = torch.stack([text[start : start + 65] for start in starts])
        loss = torch.nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        times.append(time.process_time() - began)
    middle = statistics.median(times)
    return statistics.mean(losses[-30:]), max(times[1:]) / middle, times[0] / middle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--gap", type=int, default=50)
    parser.add_argument("--lr", type=float, default=8e-3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for seed in options.seeds:
        found = {name: train(svd, seed, options) for name, svd in CONTENDERS.items()}
        exact = found["svd=full"][0]
        for name, (loss, slowest, opening) in found.items():
            worst = f"slowest step {slowest:.2f}, first {opening:.1f} x the median"
            print(f"seed {seed}  {name:9} loss {loss:.4f} = {loss / exact:.4f} x exact   {worst}")


if __name__ == "__main__":
    main()
