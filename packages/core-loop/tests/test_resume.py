"""A run is a function of its arguments, data and weights: interrupted or not, bit for bit."""

import json
import random

import datasets
import numpy as np
import pytest
import torch
from tiny import Regressor, Rows, arguments, bert, losses, same, weights

from mudarrib.core_loop import ArgumentError, EarlyStoppingCallback, Trainer, TrainerCallback


def run(folder, model=None, rows=None, resume=None, trainer=Trainer, callbacks=None, **settings):
    settings = {"max_steps": 11, "save_strategy": "steps", "save_steps": 1, "logging_steps": 1, **settings}
    model = model or Regressor(dropout=0.5)
    built = trainer(model=model, args=arguments(folder, **settings), train_dataset=rows or Rows(), callbacks=callbacks)
    built.train(resume_from_checkpoint=resume)
    return built


def without_timings(history):
    return [
        {k: v for k, v in e.items() if "runtime" not in k and "per_second" not in k} for e in history if "loss" in e
    ]


def test_the_same_seed_gives_the_same_weights_twice(tmp_path):
    assert same(weights(run(tmp_path / "a").model), weights(run(tmp_path / "b").model))
    other = run(tmp_path / "c", seed=1)
    assert not same(weights(run(tmp_path / "a").model), weights(other.model))


@pytest.mark.parametrize("stop", [1, 4, 5, 7, 10])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_resumed_equals_uninterrupted(tmp_path, stop, accumulation):
    settings = {"gradient_accumulation_steps": accumulation, "warmup_steps": 3}
    whole = run(tmp_path, **settings)
    rest = run(tmp_path / "rest", resume=str(tmp_path / f"checkpoint-{stop}"), **settings)
    assert same(weights(whole.model), weights(rest.model))
    assert without_timings(rest.state.log_history) == without_timings(whole.state.log_history)


def test_resume_true_takes_the_newest_valid_one(tmp_path):
    whole = run(tmp_path)
    (tmp_path / "checkpoint-11" / "model.safetensors").write_bytes(b"cut short")
    for step in (8, 9):
        (tmp_path / f"checkpoint-{step}" / "manifest.json").unlink()
    rest = run(tmp_path, resume=True)
    assert same(weights(whole.model), weights(rest.model))


def test_nothing_to_resume_is_an_error(tmp_path):
    with pytest.raises(ArgumentError, match="No valid checkpoint"):
        run(tmp_path / "empty", resume=True)
    with pytest.raises(ArgumentError, match="resume_from_checkpoint"):
        run(tmp_path, resume=str(tmp_path / "nowhere"))


class Drawing(Rows):
    """Draws from all three generators when a row is read."""

    def __getitem__(self, index):
        noise = random.random() + np.random.rand() + torch.rand(()).item()
        return {"x": self.x[index] * noise, "labels": self.labels[index]}


@pytest.mark.parametrize("workers", [0, 2])
def test_random_augmentation_goes_on_where_it_was(tmp_path, workers):
    settings = {"dataloader_num_workers": workers, "save_steps": 3}
    whole = run(tmp_path, rows=Drawing(), **settings)
    rest = run(tmp_path / "rest", rows=Drawing(), resume=str(tmp_path / "checkpoint-3"), **settings)
    assert same(weights(whole.model), weights(rest.model))


class OwnLoader(Trainer):
    def get_train_dataloader(self):
        return torch.utils.data.DataLoader(self.train_dataset, batch_size=4, shuffle=True)


def test_a_users_own_shuffling_loader_goes_on_where_it_was(tmp_path):
    whole = run(tmp_path, trainer=OwnLoader)
    rest = run(tmp_path / "rest", trainer=OwnLoader, resume=str(tmp_path / "checkpoint-7"))
    assert same(weights(whole.model), weights(rest.model))


@pytest.mark.parametrize("shuffled", [False, True])
def test_an_iterable_data_set_goes_on_where_it_was(tmp_path, shuffled):
    def stream():
        rows = Rows(24)
        for index in range(24):
            yield {"x": rows.x[index].tolist(), "labels": float(rows.labels[index])}

    def make():
        data = datasets.IterableDataset.from_generator(stream)
        return data.shuffle(seed=3, buffer_size=6) if shuffled else data

    whole = run(tmp_path, rows=make())
    rest = run(tmp_path / "rest", rows=make(), resume=str(tmp_path / "checkpoint-8"))
    assert same(weights(whole.model), weights(rest.model))


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        rows = Rows(24)
        yield from (rows[index] for index in range(24))


def test_an_iterable_without_a_state_goes_on_where_it_was(tmp_path):
    whole = run(tmp_path, rows=Stream())
    rest = run(tmp_path / "rest", rows=Stream(), resume=str(tmp_path / "checkpoint-8"))
    assert same(weights(whole.model), weights(rest.model))


def test_another_batch_size_with_the_same_rows_a_step_sees_the_same_rows(tmp_path):
    seen = {}

    class Watching(Trainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            seen.setdefault(self.state.global_step, []).extend(inputs["labels"].tolist())
            return super().training_step(model, inputs, num_items_in_batch)

    run(tmp_path, trainer=Watching, rows=Rows(40))
    whole = dict(seen)
    seen.clear()
    run(tmp_path / "rest", trainer=Watching, rows=Rows(40), resume=str(tmp_path / "checkpoint-4"),
        per_device_train_batch_size=2, gradient_accumulation_steps=2)  # fmt: skip
    assert seen == {step: rows for step, rows in whole.items() if step >= 4}


def test_the_arguments_given_now_win(tmp_path):
    run(tmp_path, max_steps=4)
    trainer = run(tmp_path / "rest", resume=str(tmp_path / "checkpoint-4"), max_steps=10, logging_steps=5, save_steps=7,
                  learning_rate=0.5, weight_decay=0.25)  # fmt: skip
    assert [entry["step"] for entry in trainer.state.log_history if "loss" in entry] == [1, 2, 3, 4, 5, 10]
    assert trainer.state.log_history[-2]["learning_rate"] == pytest.approx(0.05)
    assert trainer.optimizer.param_groups[0]["weight_decay"] == 0.25
    assert trainer.state.save_steps == 7


def test_a_second_train_starts_anew(tmp_path):
    model = Regressor()
    start = weights(model)
    trainer = Trainer(model=model, args=arguments(tmp_path, logging_steps=1), train_dataset=Rows())
    trainer.train()
    first = losses(trainer), weights(model)
    model.load_state_dict(start)
    trainer.train()
    assert losses(trainer) == first[0]
    assert same(weights(model), first[1])


def test_a_run_that_is_done_stays_done(tmp_path):
    whole = run(tmp_path)
    again = run(tmp_path, resume=True)
    assert again.state.global_step == 11
    assert same(weights(whole.model), weights(again.model))


def test_callback_counters_come_back(tmp_path):
    scores = iter([0.9, 0.5, 0.5] + [0.5] * 9)

    def go(steps, resume=None):
        trainer = Trainer(
            model=Regressor(), train_dataset=Rows(), eval_dataset=Rows(8), callback=EarlyStoppingCallback(3),
            compute_metrics=lambda p: {"score": next(scores)},
            args=arguments(tmp_path, max_steps=steps, eval_strategy="steps", eval_steps=1, save_strategy="steps",
                           save_steps=1, load_best_model_at_end=True, metric_for_best_model="score",
                           greater_is_better=True),
        )  # fmt: skip
        trainer.train(resume_from_checkpoint=resume)
        return trainer.state.global_step

    with pytest.warns(FutureWarning, match="callbacks="):
        assert go(3) == 3
        assert go(12, resume=True) == 4


def test_a_peers_model_with_a_processing_class_resumes(tmp_path):
    ids = torch.randint(0, 40, (20, 6), generator=torch.Generator().manual_seed(0))
    rows = [{"input_ids": row, "labels": row[0] % 3} for row in ids]
    whole = run(tmp_path, bert(), rows, save_steps=4)
    rest = run(tmp_path / "rest", bert(seed=9), rows, resume=str(tmp_path / "checkpoint-4"))
    assert same(weights(whole.model), weights(rest.model))


def test_no_pickle_is_written(tmp_path):
    run(tmp_path, max_steps=2)
    names = {path.name for path in (tmp_path / "checkpoint-2").iterdir()}
    assert {"model.safetensors", "trainer_state.json", "manifest.json", "training_args.json"} <= names
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pth", ".pkl"))]
    state = json.loads((tmp_path / "checkpoint-2" / "trainer_state.json").read_text())
    assert state["global_step"] == 2 and state["log_history"]


def test_limit_keeps_the_best_and_the_newest(tmp_path):
    scores = iter([0.1, 0.9, 0.2, 0.3, 0.4, 0.5])
    trainer = Trainer(
        model=Regressor(), train_dataset=Rows(), eval_dataset=Rows(8), compute_metrics=lambda p: {"score": next(scores)},
        args=arguments(tmp_path, max_steps=12, eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2,
                       save_total_limit=2, load_best_model_at_end=True, metric_for_best_model="score",
                       greater_is_better=True),
    )  # fmt: skip
    trainer.train()
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == ["checkpoint-12", "checkpoint-4"]
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-4")


def test_save_strategy_best_saves_each_best(tmp_path):
    scores = iter([0.1, 0.9, 0.2, 0.95])
    trainer = Trainer(
        model=Regressor(), train_dataset=Rows(), eval_dataset=Rows(8), compute_metrics=lambda p: {"score": next(scores)},
        args=arguments(tmp_path, max_steps=4, eval_strategy="steps", eval_steps=1, save_strategy="best",
                       metric_for_best_model="score", greater_is_better=True),
    )  # fmt: skip
    trainer.train()
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == [f"checkpoint-{n}" for n in (1, 2, 4)]


class StopsAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        return {"should_epoch_stop": state.global_step == self.step}


def test_an_epoch_cut_short_is_not_taken_up_again(tmp_path):
    whole = run(tmp_path, callbacks=[StopsAt(3)])
    rest = run(tmp_path / "rest", callbacks=[StopsAt(3)], resume=str(tmp_path / "checkpoint-6"))
    assert same(weights(whole.model), weights(rest.model))
