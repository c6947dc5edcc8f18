"""Scripts as the peers document them, run twice: as they are, and with nothing changed but the import lines."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import docs_kit  # noqa: E402

PLAIN = """
import numpy as np
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding
from transformers import Trainer, TrainingArguments, EarlyStoppingCallback, set_seed

set_seed(0)
dataset = load_dataset("csv", data_files={"train": "train.csv", "test": "test.csv"})
tokenizer = AutoTokenizer.from_pretrained("models/bert")


def preprocess_function(examples):
    return tokenizer(examples["text"], truncation=True, max_length=48)


tokenized = dataset.map(preprocess_function, batched=True)
data_collator = DataCollatorWithPadding(tokenizer=tokenizer)


def compute_metrics(eval_pred):
    predictions, labels = eval_pred
    predictions = np.argmax(predictions, axis=1)
    return {"accuracy": float((predictions == labels).mean())}


id2label = {0: "NEGATIVE", 1: "POSITIVE"}
model = AutoModelForSequenceClassification.from_pretrained(
    "models/bert", num_labels=2, id2label=id2label, label2id={v: k for k, v in id2label.items()}
)
training_args = TrainingArguments(
    output_dir="my_awesome_model",
    learning_rate=2e-5,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=16,
    num_train_epochs=2,
    weight_decay=0.01,
    eval_strategy="epoch",
    save_strategy="epoch",
    load_best_model_at_end=True,
    metric_for_best_model="accuracy",
    report_to="none",
)
trainer = Trainer(
    model=model,
    args=training_args,
    train_dataset=tokenized["train"],
    eval_dataset=tokenized["test"],
    processing_class=tokenizer,
    data_collator=data_collator,
    compute_metrics=compute_metrics,
    callbacks=[EarlyStoppingCallback(early_stopping_patience=2)],
)
result = trainer.train()
trainer.save_model("final")
trainer.log_metrics("train", result.metrics)
trainer.save_metrics("train", result.metrics)
trainer.save_state()
metrics = trainer.evaluate()
output = trainer.predict(tokenized["test"])
print("RESULT", trainer.state.global_step, output.predictions.shape, sorted(metrics), sorted(output.metrics))
print("LOSS", metrics["eval_loss"])
"""

SEQ2SEQ = """
import numpy as np
from datasets import load_dataset
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, set_seed

set_seed(0)
books = load_dataset("json", data_files="en_de.jsonl", split="train").train_test_split(test_size=0.2, seed=0)
checkpoint = "models/t5"
tokenizer = AutoTokenizer.from_pretrained(checkpoint)
prefix = "translate English to German: "


def preprocess_function(examples):
    inputs = [prefix + example for example in examples["en"]]
    return tokenizer(inputs, text_target=examples["de"], max_length=64, truncation=True)


tokenized_books = books.map(preprocess_function, batched=True)
data_collator = DataCollatorForSeq2Seq(tokenizer=tokenizer, model=checkpoint)


def compute_metrics(eval_preds):
    preds, labels = eval_preds
    if isinstance(preds, tuple):
        preds = preds[0]
    preds = np.where(preds != -100, preds, tokenizer.pad_token_id)
    decoded = tokenizer.batch_decode(preds, skip_special_tokens=True)
    labels = np.where(labels != -100, labels, tokenizer.pad_token_id)
    wanted = tokenizer.batch_decode(labels, skip_special_tokens=True)
    same = np.mean([a.strip() == b.strip() for a, b in zip(decoded, wanted)])
    return {"exact": float(same), "gen_len": float(np.mean([np.count_nonzero(p != tokenizer.pad_token_id) for p in preds]))}


model = AutoModelForSeq2SeqLM.from_pretrained(checkpoint)
training_args = Seq2SeqTrainingArguments(
    output_dir="my_awesome_opus_books_model",
    eval_strategy="epoch",
    learning_rate=2e-5,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=16,
    weight_decay=0.01,
    save_total_limit=3,
    num_train_epochs=1,
    predict_with_generate=True,
    generation_max_length=12,
    report_to="none",
)
trainer = Seq2SeqTrainer(
    model=model,
    args=training_args,
    train_dataset=tokenized_books["train"],
    eval_dataset=tokenized_books["test"],
    processing_class=tokenizer,
    data_collator=data_collator,
    compute_metrics=compute_metrics,
)
trainer.train()
metrics = trainer.evaluate(max_length=8, num_beams=2)
output = trainer.predict(tokenized_books["test"], num_beams=1)
print("RESULT", trainer.state.global_step, output.predictions.ndim, sorted(metrics), sorted(output.metrics))
print("LOSS", metrics["eval_loss"])
"""

SFT = """
from datasets import load_dataset
from peft import LoraConfig
from transformers import set_seed
from trl import SFTConfig, SFTTrainer

set_seed(0)
dataset = load_dataset("json", data_files="chat.jsonl", split="train").train_test_split(test_size=0.1, seed=0)
training_args = SFTConfig(
    output_dir="Llama-SFT",
    max_length=128,
    packing=True,
    assistant_only_loss=True,
    learning_rate=1e-4,
    max_steps=4,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    gradient_checkpointing=False,
    bf16=False,
    logging_steps=1,
    eval_strategy="steps",
    eval_steps=2,
    report_to="none",
)
trainer = SFTTrainer(
    "models/chat",
    args=training_args,
    train_dataset=dataset["train"],
    eval_dataset=dataset["test"],
    peft_config=LoraConfig(r=4, target_modules="all-linear"),
)
trainer.train()
trainer.save_model("final")
metrics = trainer.evaluate()
logged = {name for entry in trainer.state.log_history for name in entry if not name.startswith(("eval_", "train_"))}
print("RESULT", trainer.state.global_step, sorted(logged & {"loss", "grad_norm", "learning_rate", "mean_token_accuracy", "entropy"}))
print("LOSS", metrics["eval_loss"])
"""
SCRIPTS = {"plain": PLAIN, "seq2seq": SEQ2SEQ, "sft": SFT}
OURS = {
    "mudarrib.core_loop": {"Trainer", "TrainingArguments", "EarlyStoppingCallback", "set_seed"},
    "mudarrib.sft": {"Seq2SeqTrainer", "Seq2SeqTrainingArguments", "SFTConfig", "SFTTrainer"},
}


def ported(script):
    """The script with its import lines changed, and nothing else."""

    def change(match):
        names = [name.strip() for name in match.group(2).split(",")]
        lines, rest = [], names
        for module, known in OURS.items():
            taken = [name for name in rest if name in known]
            rest = [name for name in rest if name not in known]
            lines += [f"from {module} import {', '.join(taken)}"] if taken else []
        return "\n".join([*([f"from {match.group(1)} import {', '.join(rest)}"] if rest else []), *lines])

    return re.sub(r"^from (transformers|trl) import (.*)$", change, script, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models, tokenizers and data under the names that the scripts use."""
    home = tmp_path_factory.mktemp("peers")
    docs_kit.classifier(home / "models" / "bert")
    docs_kit.translation_model(home / "models" / "t5")
    docs_kit.chat_model(home / "models" / "chat")
    for name in ("chat.jsonl", "en_de.jsonl"):
        lines = (docs_kit.DATA / name).read_text().splitlines(keepends=True)
        (home / name).write_text("".join(lines[:80]))
    for name in ("train", "test"):
        (home / f"{name}.csv").write_text(
            "text,label\n" + "".join(f"{w} film,{i % 2}\n" for i, w in enumerate(["good", "bad"] * 24))
        )
    return home


def run(script, where, home):
    where.mkdir()
    for item in home.iterdir():
        (where / item.name).symlink_to(item)
    (where / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=where, capture_output=True, text=True, timeout=250,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(re.findall(r"^(RESULT|LOSS) (.*)$", done.stdout, re.MULTILINE)), done.stderr


@pytest.mark.parametrize("name", SCRIPTS)
def test_only_the_import_lines_change(tmp_path, folder, name):
    script = SCRIPTS[name]
    changed = ported(script)
    assert "mudarrib" in changed and "trl" not in changed
    body = lambda text: [line for line in text.splitlines() if not line.startswith("from ")]
    assert body(changed) == body(script)
    ours, said = run(changed, tmp_path / "ours", folder)
    assert "old spelling" not in said
    if name == "sft":  # TRL is not among the tests' requirements
        assert ours["RESULT"].startswith("4 ['entropy', 'grad_norm', 'learning_rate', 'loss', 'mean_token_accuracy']")
        assert (tmp_path / "ours" / "final" / "adapter_model.safetensors").is_file()
        return
    theirs, _ = run(script, tmp_path / "theirs", folder)
    assert ours["RESULT"] == theirs["RESULT"]
    if name == "plain":
        assert abs(float(ours["LOSS"]) - float(theirs["LOSS"])) < 1e-6
