"""The guide's rows about the Trainer, checkpoints, callbacks and logs, as its readers would type them."""

import logging
import os
import random
import subprocess
import sys

import datasets
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, DataCollatorWithPadding, PreTrainedTokenizerFast

from mudarrib.core_loop import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments

WORDS = "the a film was good bad not very and plot acting slow great dull fine".split()


@pytest.fixture
def tokenizer():
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS])}, "[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]")


@pytest.fixture
def dataset(tokenizer):
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS, generator.integers(2, 8))) for _ in range(48)]
    rows = {"text": texts, "label": [int("good" in text or "great" in text) for text in texts]}
    return datasets.Dataset.from_dict(rows).map(lambda batch: tokenizer(batch["text"]), batched=True)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return BertForSequenceClassification(
        BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    )


def compute_metrics(eval_pred):
    predictions, labels = eval_pred
    return {"accuracy": float((np.argmax(predictions, axis=1) == labels).mean())}


def guide_arguments(folder, **changed):
    return TrainingArguments(
        **{
            "output_dir": str(folder), "learning_rate": 2e-5, "per_device_train_batch_size": 16,
            "per_device_eval_batch_size": 16, "num_train_epochs": 2, "weight_decay": 0.01, "eval_strategy": "epoch",
            "save_strategy": "epoch", "load_best_model_at_end": True, **changed,
        }
    )  # fmt: skip


def test_G1_the_loop_needs_only_model_data_and_arguments(tmp_path, model, dataset, tokenizer):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    output = Trainer(model, TrainingArguments(str(tmp_path), max_steps=3), train_dataset=dataset,
                     processing_class=tokenizer).train()  # fmt: skip
    assert output.global_step == 3 and output.training_loss > 0
    assert any(not torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_G2_G3_the_guides_own_call(tmp_path, model, dataset, tokenizer):
    with pytest.warns(FutureWarning, match="tokenizer= is an old spelling of processing_class="):
        trainer = Trainer(
            model=model,
            args=guide_arguments(tmp_path / "your-model"),
            train_dataset=dataset,
            eval_dataset=dataset.select(range(16)),
            tokenizer=tokenizer,
            data_collator=DataCollatorWithPadding(tokenizer=tokenizer),
            compute_metrics=compute_metrics,
        )
    trainer.train()
    assert trainer.state.epoch == 2
    assert [entry["epoch"] for entry in trainer.state.log_history if "eval_accuracy" in entry] == [1, 2]
    assert trainer.state.best_model_checkpoint is not None
    assert (tmp_path / "your-model" / "checkpoint-6" / "tokenizer.json").is_file()


def test_G3_any_processing_class_serves_and_is_saved(tmp_path, model, dataset):
    class Processor:
        def save_pretrained(self, folder):
            (folder / "processor.txt").write_text("saved")

    args = TrainingArguments(str(tmp_path), max_steps=2, per_device_train_batch_size=4, save_steps=2)
    collate = lambda rows: {
        "input_ids": nn.utils.rnn.pad_sequence([torch.tensor(row["input_ids"]) for row in rows], batch_first=True),
        "labels": torch.tensor([row["label"] for row in rows]),
    }
    Trainer(model, args, collate, dataset, processing_class=Processor()).train()
    assert (tmp_path / "checkpoint-2" / "processor.txt").read_text() == "saved"


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"save_strategy": "no"}, []),
        ({"save_strategy": "steps", "save_steps": 2}, [2, 4, 6]),
        ({"save_strategy": "steps", "save_steps": 0.5}, [3, 6]),
        ({"save_strategy": "epoch"}, [3, 6]),
        ({"save_strategy": "steps", "save_steps": 1, "save_total_limit": 2}, [5, 6]),
    ],
)
def test_G5_checkpoint_folders(tmp_path, model, dataset, tokenizer, settings, steps):
    args = TrainingArguments(str(tmp_path), num_train_epochs=2, per_device_train_batch_size=16, **settings)
    Trainer(model, args, train_dataset=dataset, processing_class=tokenizer).train()
    assert sorted(int(path.name.split("-")[1]) for path in tmp_path.glob("checkpoint-*")) == steps


def test_G6_resume_from_the_last_one_or_a_given_one(tmp_path, model, dataset, tokenizer):
    args = TrainingArguments(str(tmp_path / "your-model"), max_steps=4, save_steps=1)
    whole = Trainer(model, args, train_dataset=dataset, processing_class=tokenizer)
    whole.train()
    for resume in (True, str(tmp_path / "your-model" / "checkpoint-2")):
        again = BertForSequenceClassification(model.config)
        trainer = Trainer(again, args, train_dataset=dataset, processing_class=tokenizer)
        trainer.train(resume_from_checkpoint=resume)
        assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in again.state_dict().items())


@pytest.fixture
def deterministic():
    """What full_determinism sets holds for the process; the other tests get it back as it was."""
    before, workspace = torch.are_deterministic_algorithms_enabled(), dict(os.environ)
    yield
    torch.use_deterministic_algorithms(before)
    os.environ.clear()
    os.environ.update(workspace)


def test_G9_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(tmp_path, model, dataset, tokenizer, deterministic):
    class Draws(TrainerCallback):
        """A user's own use of every generator, at each step."""

        def __init__(self):
            self.drawn = {}

        def on_step_begin(self, args, state, control, **kwargs):
            self.drawn[state.global_step] = (random.random(), np.random.rand(), float(torch.rand(())))

    def run(model, resume=None):
        args = TrainingArguments(str(tmp_path), max_steps=8, save_steps=3, logging_steps=1, full_determinism=True,
                                 per_device_train_batch_size=4, report_to="none")  # fmt: skip
        draws = Draws()
        trainer = Trainer(model, args, train_dataset=dataset, processing_class=tokenizer, callbacks=[draws])
        trainer.train(resume_from_checkpoint=resume)
        return [entry.get("loss") for entry in trainer.state.log_history if "loss" in entry], draws.drawn

    assert model.config.hidden_dropout_prob > 0, "the model draws too"
    losses, drawn = run(model)
    again = BertForSequenceClassification(model.config)
    resumed_losses, resumed_draws = run(again, str(tmp_path / "checkpoint-3"))
    assert resumed_losses == losses and resumed_draws == {step: drawn[step] for step in range(3, 8)}
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in again.state_dict().items())


def test_G10_every_method_of_the_guide_is_really_called(tmp_path, model, dataset, tokenizer):
    called = []

    def watched(name):
        def method(self, *args, **kwargs):
            called.append(name)
            return getattr(super(Customised, self), name)(*args, **kwargs)

        return method

    methods = (
        "get_train_dataloader", "get_eval_dataloader", "get_test_dataloader", "log", "create_optimizer_and_scheduler",
        "create_optimizer", "create_scheduler", "compute_loss", "training_step", "prediction_step", "evaluate",
        "predict",
    )  # fmt: skip
    Customised = type("Customised", (Trainer,), {name: watched(name) for name in methods})
    args = TrainingArguments(str(tmp_path), max_steps=2, eval_strategy="steps", eval_steps=2, logging_steps=1)
    trainer = Customised(model, args, train_dataset=dataset, eval_dataset=dataset, processing_class=tokenizer)
    trainer.train()
    trainer.predict(dataset)
    assert set(called) == set(methods)


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.get("logits")
        loss_fct = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0], device=model.device))
        loss = loss_fct(logits.view(-1, self.model.config.num_labels), labels.view(-1))
        return (loss, outputs) if return_outputs else loss


class NewerWeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return WeightedTrainer.compute_loss(self, model, inputs, return_outputs)


@pytest.mark.parametrize("trainer", [WeightedTrainer, NewerWeightedTrainer])
def test_G11_a_weighted_loss_in_either_signature(tmp_path, model, dataset, tokenizer, trainer):
    args = TrainingArguments(str(tmp_path), max_steps=3, gradient_accumulation_steps=2, logging_steps=1,
                             eval_strategy="steps", eval_steps=3, per_device_train_batch_size=4)  # fmt: skip
    built = trainer(model, args, train_dataset=dataset, eval_dataset=dataset, processing_class=tokenizer)
    built.train()
    losses = [entry["loss"] for entry in built.state.log_history if "loss" in entry]
    assert all(0.4 < loss < 1.1 for loss in losses), "a mean, not a sum over the accumulated batches"


def test_G12_G13_a_callback_sees_the_state_and_may_stop_by_a_dict(tmp_path, model, dataset, tokenizer):
    class StopAt(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            assert args.output_dir == str(tmp_path) and kwargs["model"] is model
            if state.global_step >= 2:
                return {"should_training_stop": True}
            return {}

    trainer = Trainer(model, TrainingArguments(str(tmp_path), max_steps=9), train_dataset=dataset,
                      processing_class=tokenizer, callbacks=[StopAt])  # fmt: skip
    trainer.train()
    assert trainer.state.global_step == 2


def test_G14_callback_as_well_as_callbacks(tmp_path, model, dataset, tokenizer):
    args = guide_arguments(tmp_path, num_train_epochs=6, metric_for_best_model="accuracy", learning_rate=1e-9)
    with pytest.warns(FutureWarning, match="callback= is an old spelling"):
        trainer = Trainer(model, args, train_dataset=dataset, eval_dataset=dataset, processing_class=tokenizer,
                          compute_metrics=compute_metrics, callback=[EarlyStoppingCallback()])  # fmt: skip
    trainer.train()
    assert trainer.state.epoch == 2, "accuracy stood still for one evaluation"


def test_G15_a_callback_of_the_peers_runs_unchanged(tmp_path, model, dataset, tokenizer):
    import transformers

    class Counting(transformers.TrainerCallback):
        steps = 0

        def on_step_end(self, args, state, control, **kwargs):
            self.steps += 1
            control.should_training_stop = state.global_step == 2
            return control

    counting = Counting()
    args = TrainingArguments(str(tmp_path), max_steps=9, report_to="tensorboard", logging_steps=1)
    with pytest.warns(FutureWarning, match="logging_dir"):
        args = TrainingArguments(str(tmp_path), max_steps=9, report_to="tensorboard", logging_steps=1,
                                 logging_dir=str(tmp_path / "logs"))  # fmt: skip
    try:
        Trainer(model, args, train_dataset=dataset, processing_class=tokenizer, callbacks=counting).train()
    finally:
        os.environ.pop("TENSORBOARD_LOGGING_DIR", None)
    assert counting.steps == 2
    assert list((tmp_path / "logs").glob("events.out.tfevents*"))


def test_G16_levels_by_process(tmp_path, monkeypatch):
    args = TrainingArguments(str(tmp_path))
    assert args.get_process_log_level() == logging.INFO
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert args.get_process_log_level() == logging.WARNING
    args = TrainingArguments(str(tmp_path), log_level="error", log_level_replica="debug")
    assert args.get_process_log_level() == logging.DEBUG
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert args.get_process_log_level() == logging.ERROR, "the first process of another machine"
    args = TrainingArguments(str(tmp_path), log_level="error", log_level_replica="debug", log_on_each_node=False)
    assert args.get_process_log_level() == logging.DEBUG


SCRIPT = """
import logging, sys
from mudarrib.core_loop import TrainingArguments, parse_args
training_args = parse_args(TrainingArguments)
logger = logging.getLogger("my_app")
logging.basicConfig(level=training_args.get_process_log_level(), format="%(levelname)s")
for level in ("info", "warning", "error"):
    getattr(logger, level)("x")
print("torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("flags", "rank", "shown"),
    [
        ("--log_level warning --log_level_replica error --log_on_each_node 0", 0, "WARNING ERROR"),
        ("--log_level warning --log_level_replica error --log_on_each_node 0", 1, "ERROR"),
        ("--log_level error --log_level_replica error --log_on_each_node 0", 0, "ERROR"),
        ("", 0, "INFO WARNING ERROR"),
        ("", 1, "WARNING ERROR"),
    ],
)
def test_G17_levels_by_flags(tmp_path, flags, rank, shown):
    script = tmp_path / "my_app.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    command = [sys.executable, str(script), "--output_dir", str(tmp_path), *flags.split()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.split() == shown.split()
    assert done.stdout.strip() == "False", "flags are answered before torch is loaded"
