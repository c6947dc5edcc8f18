"""Training with packing and with padding: the same loss curve, and the tokens per second of each.

Both train a small Llama on the same conversations. For the curves every step sees the same examples, packed or padded.
For the speed, packed batches have 4 rows, padded ones 8 examples; rounds are interleaved, each figure is
a median with the least and most.

    python tools/bench/sft_tokens.py chat.jsonl [--rounds N] [--batch N] [--length N] [--spread S]

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


def trainer(tokenizer: Any, rows: Dataset, length: int, **options: Any) -> SFTTrainer:
    """A quiet trainer on the CPU."""
    config = SFTConfig(
        tempfile.mkdtemp(),
        max_length=length,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        gradient_checkpointing=False,
        learning_rate=2e-3,
        log_level="error",
        **options,
    )
    return SFTTrainer(model=model(tokenizer, length), args=config, train_dataset=rows, processing_class=tokenizer)


def train(run: SFTTrainer) -> None:
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


def speed(tokenizer: Any, rows: Dataset, length: int, packing: bool, padded_batch: int) -> tuple[float, float]:
    """Tokens per second, without padding, and the share of padding."""
    batch = 4 if packing else padded_batch
    run = trainer(
        tokenizer, rows, length, packing=packing, per_device_train_batch_size=batch, max_steps=8, logging_steps=8
    )
    started = time.perf_counter()
    train(run)
    seconds = time.perf_counter() - started
    log = run.state.log_history[0]
    return log["num_tokens"] / seconds, log["padding"]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chat", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=8, help="rows of a padded batch")
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
    print(f"Largest difference of the loss: {curves(tokenizer, rows, arguments.length):.1e}")
    results: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(arguments.rounds):
        for packing, values in results.items():
            values.append(speed(tokenizer, rows, arguments.length, packing, arguments.batch))
    for packing, values in results.items():
        rate = [tokens for tokens, _ in values]
        name = "packed, 4 rows" if packing else f"padded, {arguments.batch} rows"
        print(f"{name}: {statistics.median(rate):,.0f} tokens/s ({min(rate):,.0f} to {max(rate):,.0f}), "
              f"padding {values[0][1]:.1%}")  # fmt: skip
    ratios = [a[0] / b[0] for a, b in zip(results[True], results[False], strict=True)]
    print(f"Ratio: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
