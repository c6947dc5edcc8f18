#!/usr/bin/env python3
"""Time of a training step of a small model, against a hand-written PyTorch loop and the peers, in one run.

Each contender trains the same model on the same rows with clipping, a linear schedule, fused AdamW and a loss
logged every ten steps; the Trainers have their default callbacks. A round runs every contender once, each in a
process of its own; the figure is the median time between two forward passes, divided by that of the hand-written
loop in the same round.

    python tools/bench/core_step.py --model mlp --rounds 7
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

CONTENDERS = ("loop", "mudarrib", "transformers")


def make_model(kind: str):
    import torch

    torch.manual_seed(0)
    if kind == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(vocab_size=512, n_positions=64, n_embd=96, n_layer=4, n_head=4)
        return GPT2LMHeadModel(config)

    class Mlp(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(32, 64)
            self.second = torch.nn.Linear(64, 4)

        def forward(self, x=None, labels=None):
            logits = self.second(torch.relu(self.first(x)))
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    return Mlp()


def make_rows(kind: str, n: int):
    import torch

    generator = torch.Generator().manual_seed(0)
    if kind == "gpt2":
        ids = torch.randint(0, 512, (n, 32), generator=generator)
        return [{"input_ids": row, "labels": row} for row in ids]
    x = torch.randn(n, 32, generator=generator)
    y = torch.randint(0, 4, (n,), generator=generator)
    return [{"x": row, "labels": label} for row, label in zip(x, y)]


def watch_forwards(model) -> list[float]:
    times: list[float] = []
    forward = model.forward

    def timed(*args, **kwargs):
        times.append(time.perf_counter())
        return forward(*args, **kwargs)

    timed.__signature__ = __import__("inspect").signature(forward)
    model.forward = timed
    return times


def hand_written(model, rows, steps: int) -> None:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, (steps - step) / steps))
    collate = lambda batch: {name: torch.stack([row[name] for row in batch]) for name in batch[0]}
    loader = torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True, collate_fn=collate)
    model.train()
    total, step = torch.zeros(()), 0
    while step < steps:
        for batch in loader:
            loss = model(**batch)["loss"]
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            total += loss.detach()
            step += 1
            if step % 10 == 0:
                print(f"{step} {total.item() / 10:.4f}", file=sys.stderr)
                total.zero_()
            if step == steps:
                return


def trained(trainer_cls, arguments_cls, model, rows, steps: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        args = arguments_cls(
            folder,
            max_steps=steps,
            per_device_train_batch_size=8,
            learning_rate=1e-3,
            logging_steps=10,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
        )
        trainer_cls(model=model, args=args, train_dataset=rows).train()


def run_one(name: str, kind: str, steps: int) -> float:
    """Median seconds between two forward passes."""
    import torch

    torch.set_num_threads(1)
    model, rows = make_model(kind), make_rows(kind, 2000)
    times = watch_forwards(model)
    if name == "loop":
        hand_written(model, rows, steps)
    elif name == "mudarrib":
        from mudarrib.core_loop import Trainer, TrainingArguments

        trained(Trainer, TrainingArguments, model, rows, steps)
    else:
        from transformers import Trainer, TrainingArguments

        trained(Trainer, TrainingArguments, model, rows, steps)
    intervals = [after - before for before, after in zip(times, times[1:])]
    return statistics.median(intervals[len(intervals) // 10 :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("mlp", "gpt2"), default="mlp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run_one(options.one, options.model, options.steps)))
        return
    ratios: dict[str, list[float]] = {name: [] for name in options.contenders}
    for number in range(options.rounds):
        seconds = {}
        for name in options.contenders:
            command = [sys.executable, __file__, "--one", name, "--model", options.model, "--steps", str(options.steps)]
            environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
            seconds[name] = json.loads(done.stdout.splitlines()[-1])
        for name, value in seconds.items():
            ratios[name].append(value / seconds["loop"])
        print(f"round {number + 1}: " + ", ".join(f"{n} {s * 1e6:.0f} us" for n, s in seconds.items()), flush=True)
    print(f"\n{options.model}, batch 8, one thread: time per step, as a multiple of the hand-written loop's")
    for name, values in ratios.items():
        print(f"  {name:14} {statistics.median(values):.2f}  [{min(values):.2f} .. {max(values):.2f}]")


if __name__ == "__main__":
    main()
