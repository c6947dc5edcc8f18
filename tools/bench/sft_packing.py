"""Packing: how fast the decision is, how full the rows are, and how fast they are gathered; TRL's beside it.

200,000 log-normal lengths of up to 2,048 tokens by default. Times are interleaved; each figure is a median over the
rounds, with the smallest and largest.

    python tools/bench/sft_packing.py [--trl] [--examples N] [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset, disable_progress_bars

LONGEST = 2_048


def data(n: int) -> tuple[np.ndarray, Dataset]:
    """Log-normal lengths, and examples of such lengths."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(5.2, 0.9, n), 8, LONGEST).astype(np.int64)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    tokens = pa.array(rng.integers(0, 32_000, int(lengths.sum()), dtype=np.int32))
    return lengths, Dataset(pa.table({"input_ids": pa.ListArray.from_arrays(offsets, tokens)}))


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and the result."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def gather(packed: Any) -> int:
    """Read every packed row; the number of tokens."""
    return sum(len(packed[row]["input_ids"]) for row in range(len(packed)))


def spread(values: list[float]) -> str:
    """Median with smallest and largest."""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def main() -> None:
    """Print the table."""
    from mudarrib.sft import PackedDataset, pack

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", action="store_true", help="time TRL's packing in the same run")
    parser.add_argument("--examples", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    disable_progress_bars()
    n = arguments.examples
    lengths, dataset = data(n)
    bound = -(-int(lengths.sum()) // LONGEST)
    rates: dict[str, list[float]] = {}
    fills: dict[str, str] = {}

    def note(name: str, seconds: float, rows: int, tokens: int) -> None:
        rates.setdefault(name, []).append(n / seconds)
        fills[name] = f"{tokens / (rows * LONGEST):.4f} | {rows / bound:.4f}"

    for _ in range(arguments.rounds):
        for strategy in ("bfd", "wrapped"):
            seconds, plan = timed(lambda strategy=strategy: pack(lengths, LONGEST, strategy))
            note(f"decide only, {strategy}", seconds, len(plan), plan.n_tokens)
        seconds, packed = timed(lambda: PackedDataset.of(dataset, LONGEST, "bfd"))
        gathering, tokens = timed(lambda packed=packed: gather(packed))
        note("decide, and read every row", seconds + gathering, len(packed), tokens)
        if arguments.trl:
            from trl import pack_dataset

            seconds, theirs = timed(lambda: pack_dataset(dataset, LONGEST, "bfd", {"load_from_cache_file": False}))
            note("TRL, bfd, materialised", seconds, len(theirs), int(lengths.sum()))
    print(f"{n:,} examples, {int(lengths.sum()):,} tokens, rows of {LONGEST:,}\n")
    print("| | examples/s: median (least to most) | fill | rows / lower bound |\n|---|---|---|---|")
    for name, values in rates.items():
        print(f"| {name} | {spread(values)} | {fills[name]} |")
    for size in (n // 4, n // 2, n):
        tracemalloc.start()
        pack(lengths[:size], LONGEST)
        print(f"\nMemory at the peak for {size:,} examples: {tracemalloc.get_traced_memory()[1] / size:.0f} bytes each")
        tracemalloc.stop()


if __name__ == "__main__":
    main()
