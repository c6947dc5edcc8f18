"""Training with packing and with padding: the same loss curve, and the tokens per second of each.

All train a small Llama on the same conversations. For the curves every step sees the same examples, packed or padded.
For the speed, each step has about the same number of tokens: 4 packed rows, or as many examples as fill them, padded to
the longest of a batch as it comes, to the longest there may be (`max_length`), or by TRL's trainer. Rounds are
interleaved, each figure is a median with the least and most; the ratios are of the clock and of the processor's time.

    python tools/bench/sft_tokens.py chat.jsonl [--trl] [--rounds N] [--rows N] [--length N] [--spread S]

`chat.jsonl` has lines with "messages". `--spread` joins random conversations so that the lengths become log-normal
with that sigma, as in mixed instruction data; 0 leaves the file's own lengths.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from datasets import Dataset, disable_progress_bars
from sft_prepare import TEMPLATE, byte_level

from mudarrib.sft import SFTConfig, SFTTrainer

STEPS = 6


def model(tokenizer: Any, length: int) -> transformers.PreTrainedModel:
    """A Llama of 4 layers and 128 dimensions, always with the same weights."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=length,
        pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config)


def trainer(tokenizer: Any, rows: Dataset, length: int, kind: str = "mudarrib", **options: Any) -> Any:
    """A quiet trainer on the CPU, of mudarrib or TRL."""
    if kind == "trl":
        import trl

        config_class, trainer_class = trl.SFTConfig, trl.SFTTrainer
    else:
        config_class, trainer_class = SFTConfig, SFTTrainer
    config = config_class(
        tempfile.mkdtemp(),
        max_length=length,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        learning_rate=2e-3,
        log_level="error",
        **options,
    )
    return trainer_class(model=model(tokenizer, length), args=config, train_dataset=rows, processing_class=tokenizer)


def train(run: Any) -> None:
    """Train without the lines that it prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        run.train()


def curves(tokenizer: Any, rows: Dataset, length: int) -> float:
    """The largest difference between the losses of a packed and of a padded run, over 10 steps on the same examples."""
    losses = []
    few = rows.select(range(48))
    for packing in (False, True):
        options = {"per_device_train_batch_size": 48, "max_steps": 10, "logging_steps": 1}
        run = trainer(tokenizer, few, length, packing=packing, **options)
        train(run)
        losses.append([log["loss"] for log in run.state.log_history if "loss" in log])
    print(f"Loss, step 1 to 10, padded: {losses[0][0]:.4f} to {losses[0][-1]:.4f}; packed: {losses[1][-1]:.4f}")
    return max(abs(a - b) for a, b in zip(*losses, strict=True))


def speed(tokenizer: Any, rows: Dataset, length: int, way: str, batch: int) -> tuple[float, float, float]:
    """Tokens per second of the clock and of the processor, without padding, and the share of padding."""
    options: dict[str, Any] = {"packing": way == "packed", "max_steps": STEPS, "logging_steps": STEPS}
    if way == "padded to max_length":
        options["pad_to_multiple_of"] = length
    kind = "trl" if way == "padded by TRL" else "mudarrib"
    run = trainer(tokenizer, rows, length, kind, per_device_train_batch_size=batch, **options)
    started, used = time.perf_counter(), time.process_time()
    train(run)
    seconds, busy = time.perf_counter() - started, time.process_time() - used
    log = run.state.log_history[0]
    return log["num_tokens"] / seconds, log["num_tokens"] / busy, log.get("padding", float("nan"))


def wasted(lengths: Any, batch: int) -> float:
    """The share of padding in batches of random examples, padded to the longest of each, over 50 shuffles."""
    rng = np.random.default_rng(0)
    shuffles = [rng.permutation(lengths)[: len(lengths) // batch * batch].reshape(-1, batch) for _ in range(50)]
    return 1 - sum(int(s.sum()) for s in shuffles) / sum(int(s.max(axis=1).sum()) * batch for s in shuffles)


def spread(values: list[float], digits: int) -> str:
    """Median, least and most."""
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chat", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=4, help="packed rows of a batch")
    parser.add_argument("--trl", action="store_true", help="train with TRL's SFTTrainer in the same run")
    parser.add_argument("--length", type=int, default=512, help="max_length: tokens of a packed row")
    parser.add_argument("--spread", type=float, default=0.0)
    arguments = parser.parse_args()
    disable_progress_bars()
    chat = [json.loads(line)["messages"] for line in arguments.chat.read_text().splitlines()]
    tokenizer = byte_level([message["content"] for turns in chat for message in turns])
    tokenizer.chat_template = TEMPLATE
    if arguments.spread:
        rng = np.random.default_rng(0)
        turns = np.clip(rng.lognormal(0.3, arguments.spread, len(chat)), 1, 12).astype(int)
        chat = [[message for i in rng.integers(0, len(chat), n) for message in chat[i]] for n in turns]
    rows = Dataset.from_list([{"messages": turns} for turns in chat])
    lengths = [len(row) for row in trainer(tokenizer, rows, arguments.length).train_dataset["input_ids"]]
    print(f"Tokens of an example: median {np.median(lengths):.0f}, 5 % {np.percentile(lengths, 5):.0f}, "
          f"95 % {np.percentile(lengths, 95):.0f}")  # fmt: skip
    print("Padding of random batches:", ", ".join(f"{n} rows {wasted(lengths, n):.1%}" for n in (4, 8, 16, 32, 64)))
    print(f"Largest difference of the loss: {curves(tokenizer, rows, arguments.length):.1e}")
    filling = max(1, round(arguments.rows * arguments.length * 0.95 / np.mean(lengths)))
    batches = {"packed": arguments.rows, "padded to the longest": filling, "padded to max_length": filling}
    if arguments.trl:
        batches["padded by TRL"] = filling
    results: dict[str, list[tuple[float, float, float]]] = {way: [] for way in batches}
    for _ in range(arguments.rounds):
        for way, values in results.items():
            values.append(speed(tokenizer, rows, arguments.length, way, batches[way]))
    print(
        "| way | rows of a batch | padding | tokens/s | packed is faster by | processor's |\n|---|---|---|---|---|---|"
    )
    for way, values in results.items():
        gains = [
            spread([a[i] / b[i] for a, b in zip(results["packed"], values, strict=True)], 2) if way != "packed" else ""
            for i in (0, 1)
        ]
        cells = [way, batches[way], f"{values[0][2]:.1%}", spread([v[0] for v in values], 0), *gains]
        print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
