"""What a run would do, before it does it: a decoded batch, the lengths, the padding, and the time."""

from __future__ import annotations

import math
import time
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from .masking import IGNORED
from .packed import PackedDataset

if TYPE_CHECKING:
    from .trainer import SFTTrainer

ROWS_LOOKED_AT = 2_000
BARS = 12


def report(trainer: SFTTrainer) -> str:
    """The report on a trainer that is ready to train; the model's weights stay as they are."""
    batch = next(iter(trainer.get_train_dataloader()))
    lengths = example_lengths(trainer.train_dataset)
    picture = draw(lengths, Path(str(trainer.args.output_dir)))
    parts = [
        f"Rows: {rows_of(trainer.train_dataset)}; model: {type(trainer.model).__name__}",
        "First batch, what is not learned in « »:",
        *(f"  {line}" for line in decoded(trainer, batch)),
        f"Tokens of an example (of {len(lengths)}): median {np.median(lengths):.0f}, longest {lengths.max()}",
        histogram(lengths),
        f"Picture: {picture}" if picture else "For a picture: pip install 'mudarrib-sft[report]'",
        padding(trainer, lengths),
        duration(trainer, batch),
    ]
    return "\n".join(parts)


def rows_of(dataset: Any) -> str:
    """How many rows there are, in words."""
    if isinstance(dataset, PackedDataset):
        plan = dataset.plan
        return f"{len(plan)} packed rows of {len(set(plan.examples.tolist()))} examples, {plan.fill:.2%} full"
    return str(len(dataset)) if hasattr(dataset, "__len__") else "a stream"


def example_lengths(dataset: Any) -> NDArray[np.int64]:
    """Tokens of each example: of all, or of the first rows of a stream."""
    if isinstance(dataset, PackedDataset):
        return dataset.plan.lengths
    rows = dataset if not hasattr(dataset, "__len__") else dataset.select(range(min(len(dataset), ROWS_LOOKED_AT)))
    looked_at = [row for row, _ in zip(rows, range(ROWS_LOOKED_AT), strict=False)]
    return np.array([n for row in looked_at for n in row.get("seq_lengths", [len(row["input_ids"])])])


def decoded(trainer: SFTTrainer, batch: dict[str, Any]) -> list[str]:
    """Each row of a batch as text, with the masked parts marked; padding is left out."""
    pad = torch.zeros_like(batch["labels"], dtype=torch.bool)
    if "attention_mask" in batch:
        pad = batch["attention_mask"] == 0
    lines = []
    for ids, labels, padded in zip(batch["input_ids"], batch["labels"], pad, strict=True):
        tokens = list(zip(ids[~padded].tolist(), (labels[~padded] != IGNORED).tolist(), strict=True))
        parts = []
        for learned, group in groupby(tokens, key=lambda token: token[1]):
            text = str(trainer.tokenizer.decode([token for token, _ in group]))
            parts.append(text if learned else f"«{text}»")
        lines.append("".join(parts).replace("\n", "⏎"))
    return lines


def histogram(lengths: NDArray[np.int64]) -> str:
    """The distribution of lengths as bars of characters."""
    first, last = int(lengths.min()), int(lengths.max())
    width = math.ceil((last - first + 1) / BARS)
    counts = np.bincount((lengths - first) // width)
    return "\n".join(
        f"  {begin:>6} … {begin + width - 1:<6} {'█' * math.ceil(40 * n / counts.max())} {n}"
        for begin, n in zip(range(first, last + 1, width), counts.tolist(), strict=True)
    )


def draw(lengths: NDArray[np.int64], folder: Path) -> Path | None:
    """The distribution of lengths as a picture; None where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    axes.hist(lengths, bins=40)
    axes.set_xlabel("tokens of an example")
    axes.set_ylabel("examples")
    path = folder / "lengths.png"
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def padding(trainer: SFTTrainer, lengths: NDArray[np.int64]) -> str:
    """The share of padding in batches of random examples and, where rows are packed, in those."""
    size = trainer.args.train_batch_size
    shuffled = np.random.default_rng(0).permutation(lengths)
    batches = [shuffled[i : i + size] for i in range(0, len(shuffled), size)]
    slots = sum(int(batch.max()) * len(batch) for batch in batches)
    line = f"Padding: {1 - lengths.sum() / slots:.1%} in batches of {size} examples"
    if isinstance(trainer.train_dataset, PackedDataset):
        line += f", {1 - trainer.train_dataset.plan.fill:.1%} in packed rows"
    return line


def duration(trainer: SFTTrainer, batch: dict[str, Any]) -> str:
    """An estimate of the time of the run, from forward and backward passes over one batch."""
    seconds = min(timed_step(trainer, batch) for _ in range(2))
    args = trainer.args
    steps = args.max_steps
    if steps <= 0:
        if not hasattr(trainer.train_dataset, "__len__"):
            return f"Time: {seconds:.2f} s a batch"
        batches = len(trainer.get_train_dataloader())
        steps = math.ceil(args.num_train_epochs * batches / args.gradient_accumulation_steps)
    whole = steps * args.gradient_accumulation_steps * seconds
    return f"Time: about {whole / 60:.1f} min for {steps} steps ({seconds:.2f} s a batch, without the optimizer)"


def timed_step(trainer: SFTTrainer, batch: dict[str, Any]) -> float:
    """Seconds of one forward and backward pass; gradients are thrown away."""
    started = time.perf_counter()
    loss = trainer.training_step(trainer.model, dict(batch))
    float(loss)  # waits for the device
    trainer.model.zero_grad()
    return time.perf_counter() - started
