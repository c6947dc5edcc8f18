"""Columns, collators, loaders."""

import logging

import datasets
import numpy as np
import pytest
import torch
from tiny import Classifier, Regressor, Rows, arguments, bert

from mudarrib.core_loop import ArgumentError, Trainer
from mudarrib.core_loop.data import row_lengths, stack_rows


def table(**columns):
    return datasets.Dataset.from_dict({"x": torch.randn(12, 4).tolist(), "labels": [0, 1, 2] * 4, **columns})


def test_stacked_rows():
    batch = stack_rows([{"a": 1, "label": 2, "text": "no", "none": None, "n": np.ones(2), "t": torch.ones(3)}] * 2)
    assert set(batch) == {"a", "labels", "n", "t"}
    assert batch["labels"].dtype == torch.int64 and batch["n"].shape == (2, 2) and batch["t"].shape == (2, 3)
    assert stack_rows([{"label_ids": [1.0, 0.0]}])["labels"].dtype == torch.float32
    assert [part.shape for part in stack_rows([(torch.ones(3), 1)] * 2)] == [(2, 3), (2,)]


def test_columns_that_the_model_does_not_take_are_named(tmp_path, caplog):
    trainer = Trainer(model=Classifier(), args=arguments(tmp_path, log_level="info"),
                      train_dataset=table(title=["t"] * 12, idx=list(range(12))))  # fmt: skip
    with caplog.at_level(logging.INFO, logger="mudarrib"):
        batch = next(iter(trainer.get_train_dataloader()))
    assert set(batch) == {"x", "labels"}
    assert any("title, idx" in record.getMessage() for record in caplog.records)


def test_no_usable_column_is_explained(tmp_path):
    rows = datasets.Dataset.from_dict({"sentence": ["a"] * 8, "score": [0] * 8})
    trainer = Trainer(model=bert(), args=arguments(tmp_path), train_dataset=rows)
    with pytest.raises(ArgumentError) as caught:
        trainer.train()
    for part in ("train_dataset", "sentence", "score", "input_ids", "remove_unused_columns"):
        assert part in str(caught.value)
    listed = Trainer(model=bert(), args=arguments(tmp_path), train_dataset=[{"sentence": "a"}] * 8)
    with pytest.raises(ArgumentError, match="sentence"):
        listed.train()


def test_columns_stay_where_that_is_asked_for(tmp_path):
    trainer = Trainer(model=Classifier(), args=arguments(tmp_path, remove_unused_columns=False),
                      train_dataset=table(extra=list(range(12))))  # fmt: skip
    assert "extra" in next(iter(trainer.get_train_dataloader()))


def test_get_model_columns_is_a_hook(tmp_path):
    class More(Trainer):
        def get_model_columns(self):
            return [*super().get_model_columns(), "extra"]

    trainer = More(model=Classifier(), args=arguments(tmp_path), train_dataset=table(extra=list(range(12))))
    assert "extra" in next(iter(trainer.get_train_dataloader()))


def test_samplers_are_hooks(tmp_path):
    class Backwards(Trainer):
        def get_train_sampler(self):
            return list(reversed(range(len(self.train_dataset))))

        def get_eval_sampler(self, eval_dataset):
            return list(reversed(range(len(eval_dataset))))

    rows = Rows(8)
    trainer = Backwards(model=Regressor(), args=arguments(tmp_path), train_dataset=rows, eval_dataset=rows)
    for loader in (trainer.get_train_dataloader(), trainer.get_eval_dataloader(), trainer.get_test_dataloader(rows)):
        assert torch.equal(torch.cat([batch["labels"] for batch in loader]), rows.labels.flip(0))


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_change_no_batch(tmp_path, workers):
    settings = {"dataloader_num_workers": workers, "seed": 5}
    if workers:
        settings |= {"dataloader_persistent_workers": True, "dataloader_prefetch_factor": 3}
    loader = Trainer(
        model=Regressor(), args=arguments(tmp_path, **settings), train_dataset=Rows()
    ).get_train_dataloader()
    expected = torch.randperm(20, generator=torch.Generator().manual_seed(5))
    assert torch.equal(torch.cat([batch["labels"] for batch in loader]), Rows().labels[expected])


def test_data_seed_moves_the_order_alone(tmp_path):
    order = lambda **kw: [
        batch["labels"].tolist()
        for batch in Trainer(
            model=Regressor(), args=arguments(tmp_path, **kw), train_dataset=Rows()
        ).get_train_dataloader()
    ]
    assert order(seed=1, data_seed=7) == order(seed=2, data_seed=7) != order(seed=1)


def test_less_than_one_batch_with_drop_last_is_an_error(tmp_path):
    trainer = Trainer(model=Regressor(), args=arguments(tmp_path, dataloader_drop_last=True), train_dataset=Rows(3))
    with pytest.raises(ArgumentError, match="drop_last"):
        trainer.train()


def test_lengths_come_from_a_column_the_table_or_the_rows():
    ids = [[1] * size for size in (3, 1, 4)]
    rows = datasets.Dataset.from_dict({"input_ids": ids, "length": [30, 10, 40]})
    assert row_lengths(rows, "length", "input_ids").tolist() == [30, 10, 40]
    assert row_lengths(rows, "nowhere", "input_ids").tolist() == [3, 1, 4]
    assert row_lengths([{"input_ids": row} for row in ids], "length", "input_ids").tolist() == [3, 1, 4]
    with pytest.raises(ArgumentError, match="length_column_name"):
        row_lengths([{"x": 1}], "length", "input_ids")


def test_rows_grouped_by_length(tmp_path):
    generator = np.random.default_rng(0)
    rows = [{"input_ids": [1] * int(size), "labels": 0} for size in generator.integers(1, 100, 200)]
    trainer = Trainer(model=bert(), args=arguments(tmp_path, train_sampling_strategy="group_by_length"),
                      train_dataset=rows, data_collator=lambda batch: {"sizes": [len(row["input_ids"]) for row in batch]})  # fmt: skip
    spread = np.mean([np.ptp(batch["sizes"]) for batch in trainer.get_train_dataloader()])
    assert spread < 8


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from (Rows()[index] for index in range(20))


def test_a_stream_needs_max_steps(tmp_path):
    with pytest.raises(ArgumentError, match="max_steps"):
        Trainer(model=Regressor(), args=arguments(tmp_path, max_steps=-1), train_dataset=Stream()).train()


def test_a_stream_begins_again_until_max_steps(tmp_path):
    trainer = Trainer(model=Regressor(), args=arguments(tmp_path, max_steps=12), train_dataset=Stream())
    trainer.train()
    assert trainer.state.global_step == 12


def test_a_stream_that_can_be_read_once_is_explained(tmp_path):
    class Once(torch.utils.data.IterableDataset):
        rows = iter([Rows()[index] for index in range(8)])

        def __iter__(self):
            return self.rows

    with pytest.raises(ArgumentError, match="read again"):
        Trainer(model=Regressor(), args=arguments(tmp_path, max_steps=12), train_dataset=Once()).train()


def test_the_last_window_of_a_stream_takes_its_step(tmp_path):
    trainer = Trainer(model=Regressor(), args=arguments(tmp_path, max_steps=4, gradient_accumulation_steps=3),
                      train_dataset=Stream())  # fmt: skip
    trainer.train()
    assert trainer.state.global_step == 4
