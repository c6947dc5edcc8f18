"""How long it takes to be back at a place in the data, by number of batches consumed.

map-style: `ResumableBatches`, from load to the first batch of indices. iterable: an `IterableDataset` of `datasets`
with a map over it, whose state_dict lies in a checkpoint, from load to the first example. walk: the same iterable by
drawing and dropping what was consumed, for comparison (only up to --walk batches).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import datasets

from mudarrib.ckpt_hub import CheckpointStore, ResumableBatches

BATCH = 8


def words(example: dict[str, int]) -> dict[str, list[int]]:
    return {"ids": [example["x"] % 97] * 16}


def iterable(n_examples: int) -> datasets.IterableDataset:
    data = datasets.Dataset.from_dict({"x": range(n_examples)})
    return data.to_iterable_dataset(num_shards=8).map(words)


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def map_style(root: Path, n_examples: int, n_batches: int) -> Callable[[], object]:
    def make() -> ResumableBatches:
        return ResumableBatches(n_examples, BATCH)

    sampler = make()
    sampler.advance(n_batches)
    CheckpointStore(root / "map").save(n_batches, {"data": sampler})

    def resume() -> object:
        again = make()
        CheckpointStore(root / "map").load({"data": again})
        return next(iter(again))

    return resume


def iterable_style(root: Path, n_examples: int, n_batches: int) -> Callable[[], object]:
    data = iterable(n_examples)
    rows = iter(data)
    for _ in range(n_batches * BATCH):
        next(rows)
    CheckpointStore(root / "iterable").save(n_batches, {"data": data})
    again = iterable(n_examples)

    def resume() -> object:
        CheckpointStore(root / "iterable").load({"data": again})
        return next(iter(again))

    return resume


def walk(n_examples: int, n_batches: int) -> None:
    rows = iter(iterable(n_examples))
    for _ in range(n_batches * BATCH + 1):
        next(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[0, 1000, 10_000, 50_000])
    parser.add_argument("--walk", type=int, default=1000, help="most batches to walk through (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    n_examples = max(options.batches) * BATCH + 100
    for n_batches in options.batches:
        root = Path(tempfile.mkdtemp(prefix="ckpt-resume-"))
        for name, prepare in (("map-style", map_style), ("iterable", iterable_style)):
            resume = prepare(root, n_examples, n_batches)
            times = [seconds(resume) * 1000 for _ in range(options.rounds)]
            print(
                f"{n_batches:7} batches  {name:10} {statistics.median(times):8.1f} ms"
                f" [{min(times):.1f} .. {max(times):.1f}]"
            )
        if n_batches <= options.walk:
            print(f"{n_batches:7} batches  walk       {seconds(partial(walk, n_examples, n_batches)) * 1000:8.1f} ms")


if __name__ == "__main__":
    main()
