"""Generation at evaluation: what plain `generate` gives, whatever the batch, and never a look at the labels."""

import numpy as np
import pytest
import torch
import transformers
from datasets import Dataset

from mudarrib.core_loop import ArgumentError, TrainingArguments
from mudarrib.sft import Seq2SeqTrainer, Seq2SeqTrainingArguments


@pytest.fixture
def t5():
    def make(seed=0):
        torch.manual_seed(seed)
        return transformers.T5ForConditionalGeneration(
            transformers.T5Config(
                vocab_size=40, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, dropout_rate=0.0,
                decoder_start_token_id=1, pad_token_id=1, eos_token_id=2,
            )
        )  # fmt: skip

    return make


@pytest.fixture
def pairs(tokenizer, sentences):
    made = tokenizer(add_eos=True)

    def make(n=12, seed=0):
        return Dataset.from_list(
            [
                {**made(a), "labels": made(" ".join(a.split()[: 1 + len(a) % 4]))["input_ids"]}
                for a in sentences(n, seed, low=1, high=9)
            ]
        ).remove_columns("token_type_ids" if "token_type_ids" in made("a") else [])

    return make


@pytest.fixture
def trainer(t5, tokenizer, pairs, run_args):
    settings = {name: value for name, value in run_args.items() if name != "max_length"}

    def make(model=None, train_dataset=None, eval_dataset=None, compute_metrics=None, **options):
        options.setdefault("predict_with_generate", True)
        options.setdefault("per_device_eval_batch_size", 3)
        return Seq2SeqTrainer(
            model=model or t5(),
            args=Seq2SeqTrainingArguments(**{**settings, **options}),
            train_dataset=train_dataset or pairs(),
            eval_dataset=eval_dataset or pairs(8, 1),
            processing_class=tokenizer(add_eos=True),
            compute_metrics=compute_metrics,
        )

    return make


def generated_one_by_one(model, rows, **options):
    model.eval()
    ids = []
    for row in rows:
        out = model.generate(
            input_ids=torch.tensor([row["input_ids"]]), attention_mask=torch.tensor([row["attention_mask"]]), **options
        )
        ids.append([t for t in out[0].tolist() if t != 1])
    return ids


def without_padding(predictions):
    return [[t for t in row if t != 1] for row in predictions.tolist()]


@pytest.mark.parametrize(
    "options", [{"max_length": 7}, {"max_new_tokens": 4, "num_beams": 3}, {"max_length": 9, "num_beams": 2}]
)
def test_predict_gives_what_plain_generate_gives(trainer, pairs, options):
    made = trainer(max_steps=5, learning_rate=1e-2)
    made.train()
    rows = pairs(10, 2)
    output = made.predict(rows, **options)
    assert without_padding(output.predictions) == generated_one_by_one(made.model, rows, **options)
    assert (output.predictions != -100).all(), "predictions can be decoded as they are"


def test_options_of_a_call_win_over_arguments_and_those_over_the_model(trainer, pairs, t5):
    model = t5()
    model.generation_config.max_length = 5
    assert trainer(model).predict(pairs(4)).predictions.shape[1] == 5
    made = trainer(generation_max_length=6)
    assert made.predict(pairs(4)).predictions.shape[1] == 6
    assert made.predict(pairs(4), max_length=8).predictions.shape[1] == 8
    assert made.predict(pairs(4), max_new_tokens=3).predictions.shape[1] == 4
    assert made.predict(pairs(4)).predictions.shape[1] == 6, "the options of one call don't outlive it"


def test_labels_never_reach_generation(trainer, pairs):
    rows = pairs(6, 3)
    wrong = rows.map(lambda row: {"labels": [7, 2]})
    without = rows.remove_columns("labels")
    made = trainer(max_steps=2, generation_max_length=6)
    predictions = [made.predict(each).predictions for each in (rows, wrong, without)]
    assert np.array_equal(predictions[0], predictions[1]) and np.array_equal(predictions[0], predictions[2])
    assert "test_loss" in made.predict(rows).metrics and "test_loss" not in made.predict(without).metrics


def test_the_loss_is_that_of_an_evaluation_without_generation(trainer):
    with_it = trainer(compute_metrics=lambda p: {}).evaluate()["eval_loss"]
    assert with_it == pytest.approx(trainer(predict_with_generate=False).evaluate()["eval_loss"], rel=1e-6)


def test_metrics_see_token_ids(trainer):
    seen = {}

    def metrics(prediction):
        seen.update(predictions=prediction.predictions, labels=prediction.label_ids)
        return {"length": float((prediction.predictions != 1).sum(-1).mean())}

    result = trainer(compute_metrics=metrics, generation_max_length=6).evaluate()
    assert seen["predictions"].shape == (8, 6) and seen["labels"].shape[0] == 8
    assert (seen["labels"] == -100).any(), "ragged labels are padded with -100"
    assert "eval_length" in result


def test_options_reach_each_of_several_data_sets(trainer, pairs):
    lengths = []
    made = trainer(
        eval_dataset={"a": pairs(4), "b": pairs(4)},
        compute_metrics=lambda p: lengths.append(p.predictions.shape[1]) or {},
    )
    made.evaluate(max_length=7)
    made.evaluate()
    assert lengths == [7, 7, 21, 21]


def test_a_generation_config_from_a_folder(trainer, pairs, tmp_path):
    transformers.GenerationConfig(max_length=4, decoder_start_token_id=1, pad_token_id=1).save_pretrained(
        tmp_path / "g"
    )
    for given in (tmp_path / "g", str(tmp_path / "g" / "generation_config.json")):
        assert trainer(generation_config=given).predict(pairs(4)).predictions.shape[1] == 4


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"generation_config": "/nowhere/at/all"}, "generation_config"),
        ({"generation_max_length": 0}, "generation_max_length"),
        ({"generation_num_beams": -1}, "generation_num_beams"),
    ],
)
def test_bad_options_are_named(trainer, options, named):
    with pytest.raises(ArgumentError, match=named):
        trainer(**options)


def test_sortish_sampling_groups_lengths(trainer, pairs):
    def padding(made):
        return sum(int((batch["attention_mask"] == 0).sum()) for batch in made.get_train_dataloader())

    options = {"train_dataset": pairs(64), "per_device_train_batch_size": 4}
    grouped, plain = trainer(sortish_sampler=True, **options), trainer(**options)
    assert padding(grouped) < padding(plain) / 2
    grouped.train()


def test_plain_arguments_evaluate_without_generation(t5, pairs, tokenizer, run_args):
    settings = {name: value for name, value in run_args.items() if name != "max_length"}
    made = Seq2SeqTrainer(t5(), TrainingArguments(**settings), None, pairs(), pairs(4), tokenizer(add_eos=True))
    made.train()
    assert "eval_loss" in made.evaluate()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"num_beams": 0}, "num_beams = 0"),
        ({"max_new_tokens": 0}, "max_new_tokens = 0"),
        ({"num_return_sequences": 2, "num_beams": 2}, "num_return_sequences = 2"),
    ],
)
def test_options_that_can_not_be_are_refused(trainer, pairs, options, named):
    with pytest.raises(ArgumentError, match=named):
        trainer().predict(pairs(), **options)


def test_more_texts_a_row_are_refused_from_the_config_too(trainer, pairs):
    made = trainer(generation_config={"num_return_sequences": 2, "num_beams": 2, "max_length": 9})
    assert made.model.generation_config.max_length == 9, "a dict serves"
    with pytest.raises(ArgumentError, match="num_return_sequences = 2"):
        made.predict(pairs())


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"input_ids": [5]}, "labels"),
        ({"en": "a", "de": "film"}, "labels"),
        ({"input_ids": "a", "labels": "film"}, "tokenize it"),
        ({"input_ids": [5], "labels": [99]}, "token 99"),
    ],
    ids=["no labels", "texts", "strings", "vocabulary"],
)
def test_data_that_can_not_be_learned_from_are_refused(trainer, row, named):
    with pytest.raises(ArgumentError, match=named):
        trainer(train_dataset=Dataset.from_list([row] * 4))


def test_a_model_that_does_not_generate_is_refused(trainer):
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=40, **shape))
    with pytest.raises(ArgumentError, match="predict_with_generate"):
        trainer(model=model)
    trainer(model=model, predict_with_generate=False)


def test_rows_that_are_tokenized_as_they_are_read_serve(trainer, pairs):
    rows = pairs()
    texts = Dataset.from_dict({"row": list(range(len(rows)))})
    lazy = texts.with_transform(lambda batch: rows[batch["row"]])
    trainer(train_dataset=lazy, remove_unused_columns=False).train()
