"""How long a training loop stands still for a save, and how long until the save is on the disk.

A model of about 100 million parameters with AdamW state is trained by a bare loop. Ways of saving take turns,
round by round, and what counts are the ratios within a round:

  hf            what transformers' Trainer does in `_save_checkpoint`: safetensors weights, torch.save of the
                optimizer; nothing is synced
  at once       CheckpointStore, everything on the disk when save() returns
  background    CheckpointStore(background=True)
  deferred      CheckpointStore(background=True, defer_copy=True): save() plus the wait before the next step

For each: seconds blocked, and seconds lost in all: blocked, and by which the next steps took longer than the same
number before. Last: seconds of a save that is on the disk, over those of
a raw write and fsync of the same bytes, with nothing beside them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file

from mudarrib.ckpt_hub import CheckpointStore


def build(width: int, layers: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(layers)))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4)


class Bench:
    """The loop, with what is measured about it."""

    def __init__(self, root: Path, width: int, layers: int, batch: int, steps_after: int) -> None:
        self.root = root
        self.model, self.optimizer = build(width, layers)
        self.parts = {"model": self.model, "optimizer": self.optimizer}
        self.batch = torch.randn(batch, width)
        self.steps_after = steps_after
        self.held_s = 0.0
        self.stores = {
            "at once": CheckpointStore(root / "sync", keep=1),
            "background": CheckpointStore(root / "back", keep=1, background=True),
            "deferred": CheckpointStore(root / "defer", keep=1, background=True, defer_copy=True),
        }
        self.saves = 0

    def train(self, steps: int, before_step: Callable[[], None] | None = None) -> float:
        """Seconds for some steps; `before_step` runs before the first optimizer step."""
        began = time.perf_counter()
        for _ in range(steps):
            self.model(self.batch).pow(2).mean().backward()
            if before_step is not None:
                before_step()
                before_step = None
            self.optimizer.step()
            self.optimizer.zero_grad()
        return time.perf_counter() - began

    def tensors(self) -> list[torch.Tensor]:
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        return [*(parameter.detach() for parameter in self.model.parameters()), *moments]

    def hf(self) -> None:
        new = self.root / f"hf-{self.saves}"
        new.mkdir()
        save_file(self.model.state_dict(), new / "model.safetensors", metadata={"format": "pt"})
        torch.save(self.optimizer.state_dict(), new / "optimizer.pt")
        # As save_total_limit=1 does, and our keep=1: the old one goes when the new one is there.
        for old in self.root.glob("hf-*"):
            if old != new:
                shutil.rmtree(old)

    def raw(self) -> None:
        path = self.root / "raw"
        with path.open("wb", buffering=0) as file:
            for tensor in self.tensors():
                file.write(tensor.reshape(-1).numpy().data)
            os.fsync(file.fileno())

    def measure(self, way: str) -> dict[str, float]:
        """One save, and the steps after it."""
        os.sync()
        usual = self.train(self.steps_after)
        store = self.stores.get(way)
        self.saves += 1
        began = time.perf_counter()
        if store is not None:
            store.save(self.saves, self.parts)
        else:
            self.hf()
        blocked = time.perf_counter() - began
        held = [0.0]

        def hold() -> None:
            before = time.perf_counter()
            if store is not None:
                store.finish_snapshot()
            held[0] = time.perf_counter() - before

        after = self.train(self.steps_after, hold)
        if store is not None:
            store.wait()
        return {"blocked": blocked + held[0], "lost": blocked + after - usual}

    def durable(self) -> float:
        """Seconds of a save over seconds of a raw write of as many bytes, each synced, with nothing beside them.

        Into an empty folder: deleting an older one comes after the commit.
        """
        store = CheckpointStore(self.root / "alone")
        seconds = []
        for save in (self.raw, lambda: store.save(1, self.parts)):
            os.sync()
            began = time.perf_counter()
            save()
            seconds.append(time.perf_counter() - began)
            # What one has written must not be in memory beside the other: fresh pages cost far more than used ones.
            (self.root / "raw").unlink(missing_ok=True)
            shutil.rmtree(store.root, ignore_errors=True)
        return seconds[1] / seconds[0]


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):7.3f} [{min(values):.3f} .. {max(values):.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=2048, help="of a layer (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=24, help="(default: %(default)s, 100.7 M parameters)")
    parser.add_argument("--batch", type=int, default=128, help="rows a step (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=4, help="steps after a save (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--folder", default=None, help="on the disk to measure (default: the temporary one)")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="ckpt-bench-", dir=options.folder))
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    ratios: dict[str, list[float]] = defaultdict(list)
    try:
        bench = Bench(root, options.width, options.layers, options.batch, options.steps)
        bench.train(2)
        size = sum(tensor.nbytes for tensor in bench.tensors()) / 2**20
        print(f"{size:.0f} MiB, {torch.get_num_threads()} threads, step {bench.train(2) / 2:.2f} s")
        for way in ("hf", *bench.stores):
            bench.measure(way)  # warms files and buffers
        for _ in range(options.rounds):
            row = {way: bench.measure(way) for way in ("hf", *bench.stores)}
            for way, values in row.items():
                for name, value in values.items():
                    found[way, name].append(value)
                if way != "hf":
                    ratios[f"{way}: blocked / hf"].append(values["blocked"] / row["hf"]["blocked"])
            ratios["at once: durable / raw write + fsync"].append(bench.durable())
        for (way, name), seconds in found.items():
            print(f"{way:12} {name:8} {spread(seconds)} s")
        for name, values in ratios.items():
            print(f"{name:40} {spread(values)}")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
