"""Common mistakes, each answered with the argument, the value and the fix."""

import re

import datasets
import pytest
import torch
from tiny import Classifier, Regressor, Rows, arguments, bert
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from mudarrib.core_loop import ArgumentError, Trainer


def saved(folder, **settings):
    args = arguments(folder, save_strategy="steps", save_steps=2, **settings)
    Trainer(model=Regressor(), args=args, train_dataset=Rows()).train()
    return str(folder / "checkpoint-4")


def on_meta():
    with torch.device("meta"):
        return Regressor()


def frozen():
    return Regressor().requires_grad_(False)


def never():
    raise AssertionError("not called")


CASES = {
    "model": [
        lambda f: Trainer("bert", arguments(f)),
        lambda f: Trainer(args=arguments(f)),
        lambda f: Trainer(Regressor(), arguments(f), model_init=never),
        lambda f: Trainer(on_meta(), arguments(f)),
        lambda f: Trainer(frozen(), arguments(f)),
    ],
    "model_init": [
        lambda f: Trainer(model_init=lambda a, b: None, args=arguments(f)),
        lambda f: Trainer(model_init=lambda: None, args=arguments(f)),
    ],
    "optimizers": [
        lambda f: Trainer(Regressor(), arguments(f), optimizers=(torch.optim.SGD([torch.ones(1)]), None),
                          optimizer_cls_and_kwargs=(torch.optim.SGD, {})),
    ],
    "args": [lambda f: Trainer(Regressor(), {"output_dir": str(f)})],
    "optim": [
        lambda f: Trainer(Regressor(), arguments(f, optim="adamw")),
        lambda f: Trainer(Regressor(), arguments(f, max_steps=6, optim="sgd"), train_dataset=Rows()).train(saved(f)),
    ],
    "train_dataset": [
        lambda f: Trainer(Regressor(), arguments(f)).train(),
        lambda f: Trainer(Regressor(), arguments(f), train_dataset=[]).train(),
        lambda f: Trainer(bert(), arguments(f), train_dataset=[{"text": "a"}] * 8).train(),
    ],
    "eval_dataset": [
        lambda f: Trainer(Regressor(), arguments(f)).evaluate(),
        lambda f: Trainer(Regressor(), arguments(f, eval_strategy="steps", eval_steps=1), train_dataset=Rows()),
    ],
    "per_device_train_batch_size = -1:": [lambda f: arguments(f, per_device_train_batch_size=-1)],
    "labels": [lambda f: Trainer(Classifier(), arguments(f), train_dataset=[{"x": torch.ones(4)}] * 8).train()],
    "data_collator": [
        lambda f: Trainer(bert(), arguments(f), train_dataset=[{"input_ids": [1] * n, "labels": 0} for n in range(1, 9)]).train(),
    ],
    "compute_metrics": [
        lambda f: Trainer(Regressor(), arguments(f), eval_dataset=Rows(8), compute_metrics=lambda p: 3.0).evaluate(),
    ],
    "metric_for_best_model": [
        lambda f: Trainer(Regressor(), arguments(f, eval_strategy="steps", eval_steps=1, metric_for_best_model="acuracy"),
                          train_dataset=Rows(), eval_dataset=Rows(8), compute_metrics=lambda p: {"accuracy": 1.0}).train(),
    ],
    "lr_scheduler_kwargs": [
        lambda f: Trainer(Regressor(), arguments(f, lr_scheduler_type="cosine", lr_scheduler_kwargs={"cycles": 1}),
                          train_dataset=Rows()).train(),
    ],
    "output_dir": [lambda f: Trainer(Regressor(), arguments(f / "a file" / "out"), train_dataset=Rows())],
    "report_to": [lambda f: Trainer(Regressor(), arguments(f, report_to="nowhere"), train_dataset=Rows())],
    "resume_from_checkpoint": [
        lambda f: Trainer(Regressor(), arguments(f), train_dataset=Rows()).train(resume_from_checkpoint=True),
        lambda f: Trainer(Regressor(), arguments(f), train_dataset=Rows()).train(str(f / "nowhere")),
        lambda f: Trainer(Regressor(7), arguments(f, max_steps=6), train_dataset=Rows(width=7)).train(saved(f)),
    ],
}  # fmt: skip
FLAT = [(name, number, call) for name, calls in CASES.items() for number, call in enumerate(calls)]


@pytest.mark.parametrize(("name", "call"), [(n, c) for n, _, c in FLAT], ids=[f"{n}-{i}" for n, i, _ in FLAT])
def test_a_mistake_is_answered(tmp_path, name, call):
    (tmp_path / "a file").write_text("")
    with pytest.raises(ValueError, match=name) as caught:
        call(tmp_path)
    assert len(str(caught.value)) > len(name) + 20
    if isinstance(caught.value, ArgumentError):
        assert caught.value.fix


def test_the_peers_arguments_are_taken_for_what_they_say(tmp_path):
    import transformers

    args = transformers.TrainingArguments(str(tmp_path), max_steps=2, use_cpu=True, per_device_train_batch_size=4)
    trainer = Trainer(Regressor(), args, train_dataset=Rows())
    trainer.train()
    assert trainer.state.global_step == 2 and trainer.args.count_predicted_tokens


def test_rows_that_are_tuples_are_evaluated_too(tmp_path):
    class Pair(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def forward(self, x, y):
            out = self.linear(x).squeeze(-1)
            return (out - y).square().mean(), out

    rows = torch.utils.data.TensorDataset(torch.randn(10, 4), torch.randn(10))
    trainer = Trainer(Pair(), arguments(tmp_path), train_dataset=rows, eval_dataset=rows)
    trainer.train()
    assert trainer.evaluate()["eval_loss"] > 0


def test_labels_that_are_texts_are_refused_where_a_tokenizer_pads(tmp_path):
    rows = datasets.Dataset.from_dict({"input_ids": [[2, 3], [2]] * 4, "label": ["good", "bad"] * 4})
    words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
    trainer = Trainer(bert(), arguments(tmp_path), train_dataset=rows, processing_class=tokenizer)
    with pytest.raises(ArgumentError, match=r"train_dataset = .*'label' of text.*class_encode_column"):
        trainer.train()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (torch.utils.data.TensorDataset(torch.ones(8, 4).long(), torch.zeros(8).long()), r"attention_mask \(int64 \[4\]\), in this order"),
        ([{"input_ids": [1, 2], "token_type_ids": [9, 9], "labels": 0}] * 8, r"token_type_ids \(int64 \[4, 2\]\)"),
    ],
)  # fmt: skip
def test_what_breaks_at_the_first_batch_is_told_with_the_batch(tmp_path, rows, said):
    trainer = Trainer(bert(), arguments(tmp_path, per_device_train_batch_size=4), train_dataset=rows)
    with pytest.raises(Exception) as caught:
        trainer.train()
    assert any(re.search(said, note) and "BertForSequenceClassification.forward(input_ids" in note
               for note in caught.value.__notes__)  # fmt: skip
