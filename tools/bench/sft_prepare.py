"""Preparing a data set: its time beside that of the bare tokenizer's batch encode, and TRL's beside both.

The bare time is `encode_batch_fast` on the texts (for messages: on the rendered texts) and nothing else. A byte-level
BPE tokenizer is trained on the data first. Rounds are interleaved; each figure is a median with the least and most.
Beside the time on the clock stands the processor's time of this process, which other work disturbs less.

    python tools/bench/sft_prepare.py texts.jsonl chat.jsonl [--trl] [--rows N] [--rounds N]

`texts.jsonl` has lines with a string under "document" or "text", `chat.jsonl` lines with "messages".
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, disable_caching, disable_progress_bars
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% generation %}{{ m['content'] + '<|im_end|>\n' }}"
    "{% endgeneration %}{% endfor %}"
)
UNMARKED = TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", "")


def byte_level(texts: list[str]) -> PreTrainedTokenizerFast:
    """A tokenizer of 8,000 byte-level tokens."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=8_000, special_tokens=special, initial_alphabet=alphabet)
    )
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<|pad|>", eos_token="<|im_end|>")


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds on the clock, and of the processor."""
    started, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - used


def ratios(ours: list[tuple[float, float]], bare: list[tuple[float, float]]) -> str:
    """Both times as ratios, each a median with the least and most."""
    cells = []
    for which in (0, 1):
        each = [a[which] / b[which] for a, b in zip(ours, bare, strict=True)]
        cells.append(f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})")
    return " | ".join(cells)


def build(kind: str, dataset: Dataset, tokenizer: Any, options: dict[str, Any]) -> Callable[[], Any]:
    """A function that builds a trainer of mudarrib or TRL, which prepares the data."""
    if kind == "trl":
        from trl import SFTConfig, SFTTrainer
    else:
        from mudarrib.sft import SFTConfig, SFTTrainer
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=1))

    def made() -> None:
        with tempfile.TemporaryDirectory() as folder:
            config = SFTConfig(folder, report_to="none", use_cpu=True, bf16=False, **options)
            SFTTrainer(model=model, args=config, train_dataset=dataset, processing_class=tokenizer)

    return made


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("chat", type=Path)
    parser.add_argument("--trl", action="store_true", help="time TRL's SFTTrainer in the same run")
    parser.add_argument("--rows", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    disable_progress_bars()
    disable_caching()
    lines = [json.loads(line) for line in arguments.texts.read_text().splitlines()]
    documents = [line.get("document") or line["text"] for line in lines]
    rng = np.random.default_rng(0)
    joined = [" ".join(rng.choice(documents, rng.integers(1, 8))) for _ in range(arguments.rows)]
    chat = [json.loads(line)["messages"] for line in arguments.chat.read_text().splitlines()]
    chat = [chat[i % len(chat)] for i in range(arguments.rows)]
    tokenizer = byte_level(documents)
    text_rows, chat_rows = Dataset.from_dict({"text": joined}), Dataset.from_list([{"messages": c} for c in chat])
    cases = [
        ("text", TEMPLATE, text_rows, {}),
        ("text, packed", TEMPLATE, text_rows, {"packing": True}),
        ("messages", TEMPLATE, chat_rows, {}),
        ("messages, assistant's turns by marks", TEMPLATE, chat_rows, {"assistant_only_loss": True}),
        ("messages, assistant's turns without marks", UNMARKED, chat_rows, {"assistant_only_loss": True}),
    ]
    kinds = ("mudarrib", "trl") if arguments.trl else ("mudarrib",)
    heads = [f"{kind}, ratio | {kind}, processor's" for kind in kinds]
    print(f"| data | bare encode, s | {' | '.join(heads)} |\n|---|{'---|' * (1 + 2 * len(kinds))}")
    for name, template, rows, options in cases:
        tokenizer.chat_template = template
        texts = joined if rows is text_rows else tokenizer.apply_chat_template(chat, tokenize=False)
        works = {"bare": lambda texts=texts: tokenizer.backend_tokenizer.encode_batch_fast(texts)}
        works |= {k: build(k, rows, tokenizer, options) for k in kinds if (k, template) != ("trl", UNMARKED)}
        times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in works}
        for _ in range(arguments.rounds):
            for kind, work in works.items():
                times[kind].append(timed(work))
        cells = [ratios(times[kind], times["bare"]) if kind in times else "refused | " for kind in kinds]
        print(f"| {name} | {statistics.median(times['bare'])[0]:.2f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
