"""evaluate() and predict(): losses, metrics, shapes, memory."""

import datasets
import numpy as np
import pytest
import torch
from tiny import Classifier, Regressor, Rows, arguments, gpt2

from mudarrib.core_loop import ArgumentError, EvalPrediction, Trainer


def make(folder, model=None, rows=None, metrics=None, preprocess=None, collator=None, **settings):
    return Trainer(
        model=model or Classifier(), args=arguments(folder, **settings), train_dataset=rows or Rows(20, classes=3),
        eval_dataset=rows or Rows(11, classes=3, seed=1), compute_metrics=metrics,
        preprocess_logits_for_metrics=preprocess, data_collator=collator,
    )  # fmt: skip


def accuracy(prediction):
    predictions, labels = prediction
    return {"accuracy": np.mean(predictions.argmax(-1) == labels)}


def test_loss_and_metrics_are_those_of_one_pass_by_hand(tmp_path):
    model, rows = Classifier(), Rows(11, classes=3, seed=1)
    metrics = make(tmp_path, model, rows, accuracy).evaluate()
    with torch.no_grad():
        logits = model(rows.x)["logits"]
    expected = torch.nn.functional.cross_entropy(logits, rows.labels)
    assert metrics["eval_loss"] == pytest.approx(float(expected), abs=1e-6)
    assert metrics["eval_accuracy"] == pytest.approx(float((logits.argmax(-1) == rows.labels).float().mean()))
    assert type(metrics["eval_accuracy"]) is float
    assert metrics["eval_samples_per_second"] > 0


def test_predict_gives_rows_in_order_with_and_without_labels(tmp_path):
    model, rows = Classifier(), Rows(11, classes=3, seed=1)
    trainer = make(tmp_path, model, rows)
    with torch.no_grad():
        expected = model(rows.x)["logits"].numpy()
    predictions, labels, metrics = trainer.predict(rows)
    assert np.allclose(predictions, expected) and np.array_equal(labels, rows.labels)
    assert "test_loss" in metrics
    predictions, labels, metrics = trainer.predict([{"x": row} for row in rows.x], metric_key_prefix="new")
    assert np.allclose(predictions, expected) and labels is None
    assert "new_loss" not in metrics and "new_runtime" in metrics


def test_a_dict_of_data_sets(tmp_path):
    trainer = Trainer(
        model=Classifier(), args=arguments(tmp_path, eval_strategy="steps", eval_steps=2), compute_metrics=accuracy,
        train_dataset=Rows(20, classes=3), eval_dataset={"a": Rows(8, classes=3), "b": Rows(5, classes=3, seed=2)},
    )  # fmt: skip
    trainer.train()
    keys = set().union(*trainer.state.log_history)
    assert {"eval_a_loss", "eval_b_loss", "eval_a_accuracy", "eval_b_accuracy"} <= keys
    assert set(trainer.evaluate({"c": Rows(4, classes=3)})) >= {"eval_c_loss"}


class Ragged(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x, labels=None):
        out = x.float()[..., None].expand(*x.shape, 2) * self.scale
        return {"loss": out.mean(), "logits": (out, {"mean": out.mean((1, 2))})}


def ragged(rows):
    x = torch.nn.utils.rnn.pad_sequence([row["x"] for row in rows], batch_first=True, padding_value=1)
    return {"x": x, "labels": x.clone()}


@pytest.mark.parametrize("longest_first", [True, False])
def test_ragged_nested_outputs_are_padded(tmp_path, longest_first):
    sizes = sorted(range(1, 10), reverse=longest_first)
    rows = [{"x": torch.full((size,), size), "labels": 0} for size in sizes]
    output = make(tmp_path, Ragged(), rows, collator=ragged, remove_unused_columns=False).predict(rows)
    logits, extra = output.predictions
    assert logits.shape == (9, 9, 2) and output.label_ids.shape == (9, 9) and extra["mean"].shape == (9,)
    shortest = logits[sizes.index(1)]
    assert (shortest[0] == 1).all() and (shortest[-1] == -100).all()


def test_batches_may_stay_apart(tmp_path):
    rows = Rows(11, classes=3)
    output = make(tmp_path, rows=rows, eval_do_concat_batches=False).predict(rows)
    assert [len(part) for part in output.predictions] == [4, 4, 3]


def test_preprocessed_logits(tmp_path):
    rows = Rows(11, classes=3)
    trainer = make(tmp_path, rows=rows, preprocess=lambda logits, labels: logits.argmax(-1))
    assert trainer.predict(rows).predictions.shape == (11,)


def test_batchwise_metrics(tmp_path):
    hits = []

    def metrics(prediction, compute_result):
        hits.append((prediction.predictions.argmax(-1) == prediction.label_ids).float())
        return {"accuracy": torch.cat(hits).mean()} if compute_result else None

    rows = Rows(11, classes=3)
    got = make(tmp_path, rows=rows, metrics=metrics, batch_eval_metrics=True).evaluate()
    assert got["eval_accuracy"] == pytest.approx(
        make(tmp_path, rows=rows, metrics=accuracy).evaluate()["eval_accuracy"]
    )


def test_inputs_and_losses_for_the_metrics(tmp_path):
    seen = {}

    def metrics(prediction):
        seen.update(inputs=prediction.inputs, losses=prediction.losses, items=len(list(prediction)))
        return {}

    model = Regressor()
    model.main_input_name = "x"
    make(tmp_path, model, Rows(11), metrics, include_for_metrics=["inputs", "loss"]).evaluate()
    assert seen["inputs"].shape == (11, 4) and seen["losses"].shape == (11,) and seen["items"] == 4


def test_the_model_trains_on_after_an_evaluation(tmp_path):
    class Looks(Regressor):
        modes = []

        def forward(self, x, labels=None):
            self.modes.append(self.training)
            return super().forward(x, labels)

    model = Looks()
    make(tmp_path, model, Rows(20), eval_strategy="steps", eval_steps=1, max_steps=2).train()
    assert model.modes == [True] + [False] * 5 + [True] + [False] * 5


def test_causal_loss_is_weighted_by_targets(tmp_path):
    model = gpt2()
    rows = [{"input_ids": torch.arange(size) % 40} for size in (3, 12, 4, 9, 2)]

    def pad(batch):
        ids = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in batch], batch_first=True)
        labels = torch.nn.utils.rnn.pad_sequence(
            [row["input_ids"] for row in batch], batch_first=True, padding_value=-100
        )
        return {"input_ids": ids, "labels": labels}

    small = make(tmp_path, model, rows, collator=pad, per_device_eval_batch_size=2).evaluate()["eval_loss"]
    whole = make(tmp_path, model, rows, collator=pad, per_device_eval_batch_size=5).evaluate()["eval_loss"]
    assert small == pytest.approx(whole, abs=1e-6)


def test_streamed_rows(tmp_path):
    rows = Rows(11, classes=3)
    data = datasets.Dataset.from_dict({"x": rows.x.tolist(), "labels": rows.labels.tolist()}).to_iterable_dataset()
    streamed = make(tmp_path, rows=rows, metrics=accuracy).evaluate(data)
    mapped = make(tmp_path, rows=rows, metrics=accuracy).evaluate(rows)
    assert streamed["eval_accuracy"] == mapped["eval_accuracy"]
    assert streamed["eval_loss"] == pytest.approx(mapped["eval_loss"], abs=1e-6)


def test_no_data_is_explained(tmp_path):
    trainer = Trainer(model=Classifier(), args=arguments(tmp_path), train_dataset=Rows(8, classes=3))
    with pytest.raises(ArgumentError, match="eval_dataset"):
        trainer.evaluate()


def test_an_eval_prediction_unpacks():
    predictions, labels = EvalPrediction([1], [2])
    assert (predictions, labels) == ([1], [2])
    assert EvalPrediction([1], [2], inputs=[3])[2] == [3]
