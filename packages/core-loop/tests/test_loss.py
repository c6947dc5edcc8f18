"""One mean over all targets of a step, however they come in batches."""

import pytest
import torch
from tiny import Classifier, Regressor, Rows, arguments, bert, furthest, gpt2, losses, weights

from mudarrib.core_loop import ArgumentError, Trainer
from mudarrib.core_loop.loss import LossCall, LossRule, ModelFacts


def run(folder, model, rows, batch, accumulation, trainer=Trainer, collator=None, **settings):
    args = arguments(
        folder, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, max_grad_norm=0.0,
        optim="sgd", logging_steps=1, lr_scheduler_type="constant", train_sampling_strategy="sequential", **settings,
    )  # fmt: skip
    built = trainer(model=model, args=args, train_dataset=rows, data_collator=collator)
    built.train()
    return weights(model), losses(built)


def ragged_rows(n=16):
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(2, 14, (n,), generator=generator).tolist()
    return [{"input_ids": torch.randint(0, 40, (size,), generator=generator)} for size in sizes]


def pad(rows):
    ids = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row["input_ids"]) for row in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


@pytest.mark.parametrize(("batch", "accumulation"), [(4, 2), (2, 4), (1, 8), (3, 3)])
@pytest.mark.parametrize("make", [Classifier, lambda: bert().eval()])
def test_accumulation_equals_one_batch_for_classifiers(tmp_path, make, batch, accumulation):
    if make is Classifier:
        rows, collator = Rows(18, classes=3), None
    else:
        ids = torch.randint(0, 40, (18, 6), generator=torch.Generator().manual_seed(0))
        rows, collator = [{"input_ids": row, "labels": row[0] % 3} for row in ids], None

    class NoDropout(Trainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            for module in model.modules():
                if isinstance(module, torch.nn.Dropout):
                    module.p = 0.0
            return super().training_step(model, inputs, num_items_in_batch)

    whole, whole_losses = run(tmp_path, make(), rows, batch * accumulation, 1, NoDropout, collator)
    parts, part_losses = run(tmp_path, make(), rows, batch, accumulation, NoDropout, collator)
    assert furthest(whole, parts) < 1e-6
    assert part_losses == pytest.approx(whole_losses, abs=1e-6)


@pytest.mark.parametrize(("batch", "accumulation"), [(4, 2), (2, 4), (1, 8)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_accumulation_equals_one_batch_for_a_causal_model_with_ragged_rows(tmp_path, batch, accumulation, smoothing):
    rows = ragged_rows()
    settings = {"label_smoothing_factor": smoothing, "max_steps": 2}
    whole, whole_losses = run(tmp_path, gpt2(), rows, 8, 1, collator=pad, **settings)
    parts, part_losses = run(tmp_path, gpt2(), rows, batch, accumulation, collator=pad, **settings)
    assert furthest(whole, parts) < 1e-6
    assert part_losses == pytest.approx(whole_losses, abs=1e-6)


def test_the_logged_loss_is_comparable_with_the_evaluation_loss(tmp_path):
    rows = ragged_rows(8)
    model = gpt2()
    trainer = Trainer(
        model=model,
        args=arguments(tmp_path, per_device_train_batch_size=8, per_device_eval_batch_size=3, max_steps=1,
                       logging_steps=1, learning_rate=0.0),
        train_dataset=rows, eval_dataset=rows, data_collator=pad,
    )  # fmt: skip
    trainer.train()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(losses(trainer)[0], abs=1e-6)


def test_the_peers_count_of_labels_is_a_switch(tmp_path):
    rule = LossRule(ModelFacts.of(gpt2()), predicted_only=True)
    batch = pad(ragged_rows(4))
    assert int(rule.targets(batch)) == int((batch["labels"] != -100).sum()) - 4
    rule = LossRule(ModelFacts.of(gpt2()), predicted_only=False)
    assert int(rule.targets(batch)) == int((batch["labels"] != -100).sum())


class WithoutCount(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = torch.nn.CrossEntropyLoss()(outputs["logits"], labels)
        return (loss, outputs) if return_outputs else loss


class IgnoresCount(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = torch.nn.CrossEntropyLoss()(outputs["logits"], labels)
        return (loss, outputs) if return_outputs else loss


class DividesByCount(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = torch.nn.CrossEntropyLoss(reduction="sum")(outputs["logits"], labels)
        loss = loss / (num_items_in_batch if num_items_in_batch is not None else len(labels))
        return (loss, outputs) if return_outputs else loss


class CallsSuper(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        return super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)


@pytest.mark.parametrize("trainer", [WithoutCount, IgnoresCount, DividesByCount, CallsSuper])
def test_any_signature_of_compute_loss_is_scaled_right(tmp_path, trainer):
    rows = Rows(18, classes=3)
    expected, expected_losses = run(tmp_path, Classifier(), rows, 8, 1)
    got, got_losses = run(tmp_path, Classifier(), rows, 2, 4, trainer)
    assert furthest(expected, got) < 1e-6
    assert got_losses == pytest.approx(expected_losses, abs=1e-6)


@pytest.mark.parametrize(
    ("trainer", "takes", "divides"),
    [(WithoutCount, False, False), (IgnoresCount, True, False), (DividesByCount, True, True), (CallsSuper, True, True)],
)
def test_what_an_override_does_with_the_count_is_read_from_its_code(trainer, takes, divides):
    call = LossCall.of(trainer.compute_loss, is_own=False)
    assert (call.takes_count, call.divides) == (takes, divides)


def test_compute_loss_func_gets_the_count_of_the_whole_step(tmp_path):
    counts = []

    def loss(outputs, labels, num_items_in_batch=None):
        counts.append(int(num_items_in_batch))
        return torch.nn.functional.cross_entropy(outputs["logits"], labels, reduction="sum") / num_items_in_batch

    rows = Rows(16, classes=3)
    expected, _ = run(tmp_path, Classifier(), rows, 8, 1, max_steps=2)
    model = Classifier()
    args = arguments(tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=4, max_steps=2, optim="sgd",
                     max_grad_norm=0.0, lr_scheduler_type="constant", train_sampling_strategy="sequential")  # fmt: skip
    Trainer(model=model, args=args, train_dataset=rows, compute_loss_func=loss).train()
    assert counts == [8] * 8
    assert furthest(expected, weights(model)) < 1e-6


def test_which_models_divide_by_the_count():
    assert ModelFacts.of(gpt2()).divides_by_count and ModelFacts.of(gpt2()).shifts_labels
    assert not ModelFacts.of(bert()).divides_by_count, "it accepts the keyword and ignores it"
    assert not ModelFacts.of(Regressor()).divides_by_count


def test_a_model_without_a_loss_is_explained(tmp_path):
    rows = [{"x": torch.ones(4)} for _ in range(8)]
    with pytest.raises(ArgumentError, match="labels"):
        Trainer(model=Classifier(), args=arguments(tmp_path), train_dataset=rows).train()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_does_not_spoil_the_log(tmp_path, bad):
    class Spoilt(Regressor):
        calls = 0

        def forward(self, x, labels=None):
            self.calls += 1
            out = super().forward(x, labels)
            return {**out, "loss": out["loss"] * (bad if self.calls == 3 else 1.0)}

    def logged(**settings):
        args = arguments(tmp_path, logging_steps=4, learning_rate=0.0, max_grad_norm=0.0, **settings)
        trainer = Trainer(model=Spoilt(), args=args, train_dataset=Rows())
        trainer.train()
        return losses(trainer)[0]

    assert 0 < logged() < 1e3
    assert not torch.isfinite(torch.tensor(logged(logging_nan_inf_filter=False)))
