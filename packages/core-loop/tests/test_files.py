"""What a Trainer writes: models, metrics, extra files, in the foreground and in the background."""

import json

import pytest
import torch
from tiny import Regressor, Rows, arguments, bert, same, weights
from transformers import BertForSequenceClassification

from mudarrib.core_loop import Trainer


def rows():
    ids = torch.randint(0, 40, (20, 6), generator=torch.Generator().manual_seed(0))
    return [{"input_ids": row, "labels": row[0] % 3} for row in ids]


def test_a_saved_model_is_read_by_transformers(tmp_path):
    trainer = Trainer(model=bert(), args=arguments(tmp_path), train_dataset=rows())
    trainer.train()
    trainer.save_model(str(tmp_path / "final"))
    again = BertForSequenceClassification.from_pretrained(tmp_path / "final")
    assert same(weights(trainer.model), weights(again))


@pytest.mark.parametrize("make", [Regressor, bert])
def test_background_and_foreground_write_the_same_bytes(tmp_path, make):
    data = rows() if make is bert else Rows()
    for name, background in (("fore", False), ("back", True)):
        args = arguments(tmp_path / name, max_steps=6, save_strategy="steps", save_steps=2, background_save=background)
        Trainer(model=make(), args=args, train_dataset=data).train()
    for step in (2, 4, 6):
        for part in ("model.safetensors", "optimizer.safetensors", "rng.json"):
            fore, back = (tmp_path / name / f"checkpoint-{step}" / part for name in ("fore", "back"))
            assert fore.read_bytes() == back.read_bytes(), (step, part)


def test_extra_files_are_a_hook(tmp_path):
    class WithNotes(Trainer):
        def get_checkpoint_files(self):
            notes = lambda folder: (folder / "notes.txt").write_text(f"step {self.state.global_step}")
            return {**super().get_checkpoint_files(), "notes": notes}

    WithNotes(
        model=Regressor(), args=arguments(tmp_path, save_strategy="steps", save_steps=2), train_dataset=Rows()
    ).train()
    assert (tmp_path / "checkpoint-2" / "notes.txt").read_text() == "step 2"
    assert "notes.txt" in (tmp_path / "checkpoint-2" / "manifest.json").read_text()


def test_an_overridden_save_model_writes_the_checkpoints_too(tmp_path):
    class Own(Trainer):
        def save_model(self, output_dir=None):
            super().save_model(output_dir)
            (self.args.folder / "called").write_text("yes")

    Own(model=bert(), args=arguments(tmp_path, save_strategy="steps", save_steps=2), train_dataset=rows()).train()
    assert (tmp_path / "called").exists()


def test_metrics_as_files(tmp_path, capsys):
    trainer = Trainer(model=Regressor(), args=arguments(tmp_path), train_dataset=Rows(), eval_dataset=Rows(8))
    metrics = trainer.train().metrics
    trainer.log_metrics("train", metrics)
    trainer.save_metrics("train", metrics)
    trainer.save_metrics("eval", trainer.evaluate())
    trainer.save_state()
    assert "***** train metrics *****" in capsys.readouterr().out
    together = json.loads((tmp_path / "all_results.json").read_text())
    assert {"train_loss", "eval_loss"} <= set(together)
    assert json.loads((tmp_path / "trainer_state.json").read_text())["global_step"] == 4


def test_save_only_model_does_not_resume(tmp_path):
    args = arguments(tmp_path, save_strategy="steps", save_steps=2, save_only_model=True)
    Trainer(model=Regressor(), args=args, train_dataset=Rows()).train()
    with pytest.raises(ValueError, match="save_only_model"):
        Trainer(model=Regressor(), args=args, train_dataset=Rows()).train(
            resume_from_checkpoint=str(tmp_path / "checkpoint-2")
        )


def test_the_log_is_a_file_that_grows_and_goes_on_after_a_resume(tmp_path):
    def lines(measured=False):
        entries = [json.loads(line) for line in (tmp_path / "log_history.jsonl").read_text().splitlines()]
        times, memory = ([entry.pop(name) for entry in entries] for name in ("time", "memory_bytes"))
        assert times == sorted(times) and min(memory) > 2**20
        return times if measured else entries

    args = arguments(tmp_path, max_steps=6, logging_steps=1, save_strategy="steps", save_steps=2)
    trainer = Trainer(model=Regressor(), args=args, train_dataset=Rows())
    trainer.train()
    assert lines() == trainer.state.log_history
    times = lines(measured=True)
    again = Trainer(model=Regressor(), args=args, train_dataset=Rows())
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert lines() == again.state.log_history
    assert lines(measured=True)[:4] == times[:4], "what was measured before the resume stays"
    assert [entry["step"] for entry in lines() if "loss" in entry] == [1, 2, 3, 4, 5, 6]
