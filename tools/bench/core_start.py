#!/usr/bin/env python3
"""Imports, and the time from the start of a process to its first training step, beside torch alone and the peers.

Rounds are interleaved; figures are medians of wall time, and ratios taken round by round.

    python tools/bench/core_start.py --rounds 5
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

MODEL = """
import torch
class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(32, 64), torch.nn.Linear(64, 4)
    def forward(self, x=None, labels=None):
        logits = self.second(torch.relu(self.first(x)))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}
rows = [{"x": torch.randn(32), "labels": torch.tensor(1)} for _ in range(64)]
"""
BARE = """
import torch
model = Mlp()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
loader = torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True)
batch = next(iter(loader))
model(**batch)["loss"].backward()
optimizer.step()
"""
TRAINER = """
from {package} import Trainer, TrainingArguments
args = TrainingArguments("/tmp/bench-start", max_steps=1, per_device_train_batch_size=8, save_strategy="no",
                         report_to="none", use_cpu=True, disable_tqdm=True)
Trainer(model=Mlp(), args=args, train_dataset=rows).train()
"""
CASES = {
    "import": {
        "torch": "import torch",
        "mudarrib Trainer": "from mudarrib.core_loop import Trainer",
        "mudarrib TrainingArguments": "from mudarrib.core_loop import TrainingArguments, TrainerCallback",
        "transformers Trainer": "from transformers import Trainer, TrainingArguments",
    },
    "first step": {
        "bare loop": MODEL + BARE,
        "mudarrib": MODEL + TRAINER.format(package="mudarrib.core_loop"),
        "transformers": MODEL + TRAINER.format(package="transformers"),
    },
}


def seconds(code: str) -> float:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    for title, cases in CASES.items():
        base = next(iter(cases))
        times: dict[str, list[float]] = {name: [] for name in cases}
        for code in cases.values():
            seconds(code)
        for _ in range(rounds):
            for name, code in cases.items():
                times[name].append(seconds(code))
        print(f"\n{title}: seconds, and as a multiple of {base}")
        for name, values in times.items():
            ratios = [value / other for value, other in zip(values, times[base], strict=True)]
            spread = f"[{min(ratios):.2f} .. {max(ratios):.2f}]"
            print(f"  {name:28} {statistics.median(values):6.2f} s  {statistics.median(ratios):.2f}  {spread}")


if __name__ == "__main__":
    main()
