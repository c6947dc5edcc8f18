"""The same run by transformers' Trainer and by ours: equal events, log history and weights, bit for bit."""

import dataclasses

import datasets
import pytest
import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM

import mudarrib.core_loop as ours
from mudarrib.ckpt_hub import to_peers

TIMINGS = ("runtime", "per_second", "preparation_time")


@dataclasses.dataclass
class Peer:
    trainer: type
    arguments: type
    random_order: str


PEERS = (
    Peer(transformers.Trainer, transformers.TrainingArguments, "random"),
    Peer(ours.Trainer, ours.TrainingArguments, "random"),
)


def llama(dropout=0.0):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        attention_dropout=dropout,
    )
    return LlamaForCausalLM(config)


def bert():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, num_labels=3
    )
    return BertForSequenceClassification(config)


def token_rows(n, seed=0, width=12):
    ids = torch.randint(0, 64, (n, width), generator=torch.Generator().manual_seed(seed))
    return datasets.Dataset.from_dict({"input_ids": ids.tolist(), "labels": ids.tolist()})


def class_rows(n, seed=0, width=12):
    rows = token_rows(n, seed, width)
    return rows.remove_columns("labels").add_column("labels", [row[0] % 3 for row in rows["input_ids"]])


class Recorder(transformers.TrainerCallback):
    def __init__(self, stop_at=None):
        self.events = []
        self.stop_at = stop_at

    def on_step_end(self, args, state, control, **kwargs):
        self.events.append(("on_step_end", state.global_step))
        if state.global_step == self.stop_at:
            control.should_training_stop = True
        return control


def record(event):
    def method(self, args, state, control, **kwargs):
        self.events.append((event, state.global_step, state.epoch))

    return method


for name in vars(transformers.TrainerCallback):
    if name.startswith("on_") and name != "on_step_end":
        setattr(Recorder, name, record(name))


def run(
    peer,
    folder,
    model,
    train,
    evaluation=None,
    stop_at=None,
    metrics=None,
    trainer_settings=None,
    resume=None,
    **settings,
):
    recorder = Recorder(stop_at)
    settings = {
        "per_device_train_batch_size": 4,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        **settings,
    }
    trainer = peer.trainer(
        model=model,
        args=peer.arguments(str(folder), **settings),
        train_dataset=train,
        eval_dataset=evaluation,
        compute_metrics=metrics,
        callbacks=[recorder],
        **(trainer_settings or {}),
    )
    result = trainer.train(resume_from_checkpoint=resume)
    return trainer, recorder.events, result


def without_timings(history):
    return [{k: v for k, v in entry.items() if not any(part in k for part in TIMINGS)} for entry in history]


def assert_equal_runs(tmp_path, make_model, train, evaluation=None, **settings):
    theirs, their_events, their_result = run(PEERS[0], tmp_path / "theirs", make_model(), train, evaluation, **settings)
    own, own_events, own_result = run(PEERS[1], tmp_path / "own", make_model(), train, evaluation, **settings)
    assert own_events == their_events
    assert without_timings(own.state.log_history) == without_timings(theirs.state.log_history)
    assert own_result.training_loss == their_result.training_loss
    assert own_result.global_step == their_result.global_step
    expected = theirs.model.state_dict()
    for name, tensor in own.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    return theirs, own


@pytest.mark.parametrize("order", ["sequential", "random"])
def test_epochs_with_a_partial_last_window(tmp_path, order):
    assert_equal_runs(
        tmp_path,
        llama,
        token_rows(26),
        num_train_epochs=2,
        gradient_accumulation_steps=3,
        train_sampling_strategy=order,
    )


@pytest.mark.parametrize("order", ["sequential", "random"])
def test_stepwise_evaluation_and_saving(tmp_path, order):
    theirs, own = assert_equal_runs(
        tmp_path,
        llama,
        token_rows(40),
        token_rows(10, 1),
        max_steps=11,
        eval_strategy="steps",
        eval_steps=3,
        save_strategy="steps",
        save_steps=3,
        train_sampling_strategy=order,
    )
    folders = lambda name: sorted(path.name for path in (tmp_path / name).iterdir() if path.is_dir())
    assert folders("own") == folders("theirs")


def test_one_and_a_half_epochs(tmp_path):
    assert_equal_runs(
        tmp_path, llama, token_rows(24), num_train_epochs=1.5, train_sampling_strategy="sequential", eval_strategy="no"
    )


def test_a_stop_asked_for_by_a_callback(tmp_path):
    assert_equal_runs(
        tmp_path,
        llama,
        token_rows(40),
        num_train_epochs=3,
        gradient_accumulation_steps=2,
        stop_at=7,
        train_sampling_strategy="sequential",
    )


def test_epochwise_classification_with_dropout_metrics_and_the_best_model(tmp_path):
    assert_equal_runs(
        tmp_path,
        bert,
        class_rows(48),
        class_rows(18, 1),
        metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
        num_train_epochs=3,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        weight_decay=0.01,
        warmup_steps=4,
    )


@pytest.mark.parametrize(
    "schedule",
    ["linear", "cosine", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt", "cosine_with_restarts"],
)
def test_schedules(tmp_path, schedule):
    assert_equal_runs(tmp_path, bert, class_rows(32), max_steps=8, warmup_steps=2, lr_scheduler_type=schedule)


@pytest.mark.parametrize(
    ("schedule", "settings"),
    [
        ("cosine_with_min_lr", {"min_lr": 1e-4}),
        ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.1}),
        ("warmup_stable_decay", {"num_decay_steps": 3}),
        ("reduce_lr_on_plateau", {"patience": 0, "factor": 0.5}),
        ("polynomial", {"power": 2.0, "lr_end": 1e-5}),
        ("cosine_with_restarts", {"num_cycles": 2}),
    ],
)
def test_schedules_with_settings(tmp_path, schedule, settings):
    assert_equal_runs(
        tmp_path, bert, class_rows(32), class_rows(8, 1), max_steps=10, warmup_steps=2, eval_strategy="steps", eval_steps=2,
        lr_scheduler_type=schedule, lr_scheduler_kwargs=settings, learning_rate=1e-2, metric_for_best_model="loss",
    )  # fmt: skip


@pytest.mark.parametrize("optim", ["adamw_torch", "adamw_torch_fused", "sgd", "adagrad", "rmsprop", "adafactor"])
def test_optimizers(tmp_path, optim):
    assert_equal_runs(tmp_path, bert, class_rows(32), max_steps=6, optim=optim, weight_decay=0.1, adam_beta1=0.8)


@pytest.mark.parametrize("max_grad_norm", [0.0, 0.05, 1.0])
def test_clipping(tmp_path, max_grad_norm):
    assert_equal_runs(tmp_path, bert, class_rows(32), max_steps=6, max_grad_norm=max_grad_norm)


def test_label_smoothing(tmp_path):
    assert_equal_runs(tmp_path, bert, class_rows(32), class_rows(10, 1), max_steps=6, label_smoothing_factor=0.1,
                      eval_strategy="steps", eval_steps=3)  # fmt: skip


def test_an_evaluation_before_the_first_step(tmp_path):
    assert_equal_runs(
        tmp_path, llama, token_rows(24), token_rows(9, 1), max_steps=4, eval_on_start=True, eval_strategy="epoch",
        logging_first_step=True, logging_steps=3,
    )  # fmt: skip


@pytest.mark.parametrize("order", ["sequential", "random"])
def test_checkpoints_of_either_are_resumed_by_the_other(tmp_path, order):
    given = {"max_steps": 8, "save_strategy": "steps", "save_steps": 4, "train_sampling_strategy": order}
    theirs, own = assert_equal_runs(tmp_path, bert, class_rows(24), warmup_steps=2, **given)
    back = to_peers(tmp_path / "own" / "checkpoint-4", tmp_path / "back" / "checkpoint-4")
    for peer, checkpoint in ((PEERS[0], back), (PEERS[1], tmp_path / "theirs" / "checkpoint-4")):
        torch.manual_seed(7)
        model = BertForSequenceClassification(theirs.model.config)
        settings = {**given, "save_strategy": "no", "warmup_steps": 2}
        resumed, _, _ = run(peer, tmp_path / "again", model, class_rows(24), resume=str(checkpoint), **settings)
        assert all(torch.equal(tensor, own.model.state_dict()[name]) for name, tensor in model.state_dict().items())
        losses = [entry.get("loss") for entry in without_timings(resumed.state.log_history)]
        assert losses[:8] == [entry.get("loss") for entry in without_timings(own.state.log_history)][:8]
