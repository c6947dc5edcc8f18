#!/usr/bin/env python3
"""evaluate() against a bare loop over the same rows: time, and peak memory over what is kept.

With compute_metrics over all logits (rows x 128 x vocabulary, float32), and for the loss alone. Each case runs in a
process of its own; rounds are interleaved.

    python tools/bench/core_evaluate.py --rounds 3 --rows 250
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

CASES = ("bare", "mudarrib", "transformers", "bare loss", "mudarrib loss", "transformers loss")


def make(n_rows: int, vocabulary: int):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=vocabulary, n_positions=128, n_embd=64, n_layer=2, n_head=2)
    ids = torch.randint(0, vocabulary, (n_rows, 128))
    return GPT2LMHeadModel(config), [{"input_ids": row, "labels": row} for row in ids]


def bare(model, rows, keep: bool) -> None:
    import numpy as np
    import torch

    model.eval()
    kept, labels, total, start = None, [], 0.0, 0
    with torch.no_grad():
        for first in range(0, len(rows), 8):
            ids = torch.stack([row["input_ids"] for row in rows[first : first + 8]])
            outputs = model(input_ids=ids, labels=ids)
            total += float(outputs.loss) * len(ids)
            if keep:
                logits = outputs.logits.numpy()
                if kept is None:
                    kept = np.empty((len(rows), *logits.shape[1:]), logits.dtype)
                kept[start : start + len(ids)] = logits
                labels.append(ids.numpy())
                start += len(ids)
    if keep:
        metrics((kept, np.concatenate(labels)))


def metrics(prediction) -> dict[str, float]:
    logits, labels = prediction
    return {"mean": float(logits[0].mean()), "rows": float(len(labels))}


def evaluated(package: str, model, rows, keep: bool) -> float:
    from importlib import import_module

    module = import_module(package)
    args = module.TrainingArguments(
        "/tmp/bench-evaluate", per_device_eval_batch_size=8, report_to="none", use_cpu=True, disable_tqdm=True
    )
    trainer = module.Trainer(model=model, args=args, eval_dataset=rows, compute_metrics=metrics if keep else None)
    began = time.perf_counter()
    trainer.evaluate()
    return time.perf_counter() - began


def run_one(case: str, n_rows: int, vocabulary: int) -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    model, rows = make(n_rows, vocabulary)
    keep = "loss" not in case
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if case.startswith("bare"):
        began = time.perf_counter()
        bare(model, rows, keep)
        seconds = time.perf_counter() - began
    else:
        package = "mudarrib.core_loop" if case.startswith("mudarrib") else "transformers"
        seconds = evaluated(package, model, rows, keep)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return {"seconds": seconds, "peak": peak / (n_rows * 128 * vocabulary * 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=250)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run_one(options.one, options.rows, options.vocabulary)))
        return
    found: dict[str, list[dict[str, float]]] = {case: [] for case in options.cases}
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    size = ["--rows", str(options.rows), "--vocabulary", str(options.vocabulary)]
    for _ in range(options.rounds):
        for case in options.cases:
            command = [sys.executable, __file__, "--one", case, *size]
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
            found[case].append(json.loads(done.stdout.splitlines()[-1]))
    print(f"{options.rows} rows x 128 x {options.vocabulary}: time over the bare loop's, peak over what is kept")
    for case, values in found.items():
        base = found["bare loss" if "loss" in case else "bare"]
        ratios = [value["seconds"] / other["seconds"] for value, other in zip(values, base, strict=True)]
        peak = "" if "loss" in case else f"   peak {statistics.median(value['peak'] for value in values):.2f}"
        print(f"  {case:18} {statistics.median(ratios):.2f}  [{min(ratios):.2f} .. {max(ratios):.2f}]{peak}")


if __name__ == "__main__":
    main()
