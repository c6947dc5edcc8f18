"""Odd data, models and arguments: each is handled, or refused before training with the argument, the value and the fix."""

import pytest
import transformers
from datasets import Dataset, DatasetDict

from mudarrib.core_loop import ArgumentError
from mudarrib.sft import SFTConfig, SFTTrainer

FILM = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good film"}]
PARTS = [{"role": "user", "content": [{"type": "image", "url": "a.png"}]}]
TINY = {"vocab_size": 40, "bos_token_id": 3, "eos_token_id": 2}


def of(*rows):
    return Dataset.from_list(list(rows))


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("good", "empty"),
    [
        ({"text": "a film"}, [{"text": None}, {"text": ""}]),
        (
            {"prompt": "a ", "completion": "film"},
            [{"prompt": "a", "completion": None}, {"prompt": None, "completion": None}],
        ),
        ({"messages": FILM}, [{"messages": None}, {"messages": []}]),
        ({"prompt": FILM[:1], "completion": FILM[1:]}, [{"prompt": FILM[:1], "completion": None}]),
        ({"input_ids": [5, 6, 7]}, [{"input_ids": None}, {"input_ids": []}]),
    ],
    ids=["text", "prompt", "messages", "chat prompt", "tokens"],
)
def test_nulls_are_empty_rows_and_left_out(sft, tokenizer, chatml, caplog, good, empty, streaming):
    for rows in ([*empty, good, good], [good, *empty, good]):  # the first row needn't tell the format
        dataset = of(*rows).to_iterable_dataset() if streaming else of(*rows)
        trainer = sft(train_dataset=dataset, processing_class=tokenizer(template=chatml))
        assert len(list(trainer.train_dataset)) == 2
        assert f"{len(empty)} of {len(rows)} rows" in caplog.text
        caplog.clear()


def test_a_completion_without_a_prompt_is_learned(sft):
    rows = of({"prompt": "a", "completion": "film"}, {"prompt": None, "completion": "good film"})
    assert sft(train_dataset=rows).train_dataset[1]["labels"][-2:] != [-100, -100]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([{"input_ids": [5, 6, 70]}], "resize_token_embeddings"),
        ([{"input_ids": [5, 6, 7], "labels": [5, 6]}], "labels"),
        ([{"input_ids": [5, 6, 7], "attention_mask": [1, 1]}], "attention_mask"),
        ([{"messages": FILM, "tools": "{bad"}], "tools"),
        ([{"messages": PARTS}], "'image'.*text"),
        (["a film"], "list"),
        ([{"messages": [*FILM, *PARTS]}], "don't fit one table"),
        (DatasetDict({"train": of({"text": "a film"})}), r"dataset\['train'\]"),
        ({"a": of({"text": "a film"})}, "give one of these"),
    ],
    ids=["vocabulary", "labels", "mask", "tools", "image", "strings", "mixed", "DatasetDict", "dict"],
)
def test_what_can_not_be_trained_on_is_refused(sft, tokenizer, chatml, rows, named):
    with pytest.raises(ArgumentError, match=named):
        sft(train_dataset=rows, processing_class=tokenizer(template=chatml))


def test_empty_tools_are_none(sft, tokenizer, chatml):
    made = tokenizer(template="{{ 'dull ' if tools }}" + chatml)
    trainer = sft(train_dataset=of({"messages": FILM, "tools": ""}), processing_class=made)
    assert "dull" not in made.decode(trainer.train_dataset[0]["input_ids"])


def test_examples_longer_than_the_table_of_positions_are_refused(sft, sentences):
    def gpt2():
        return transformers.GPT2LMHeadModel(
            transformers.GPT2Config(n_positions=16, n_embd=32, n_layer=1, n_head=2, **TINY)
        )

    rows = of({"text": "a " * 20}, {"text": "film"})
    with pytest.raises(ArgumentError, match=r"max_length = 21.*16"):
        sft(model=gpt2(), train_dataset=rows, max_length=32)
    sft(model=gpt2(), train_dataset=rows, max_length=16).train()
    short = Dataset.from_dict({"text": sentences(20)})
    sft(model=gpt2(), train_dataset=short, packing=True, max_length=64).train()  # positions restart in a row


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=40, d_model=16, num_layers=1, num_heads=2, d_ff=16)), "Seq2SeqTrainer"),
        (lambda: transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)), "AutoModelForCausalLM"),
        (lambda: "/nowhere/model", "/nowhere/model"),
    ],
    ids=["T5", "BERT", "no such folder"],
)  # fmt: skip
def test_models_of_another_kind_are_refused(sft, model, named):
    with pytest.raises(ArgumentError, match=rf"model = .*{named}"):
        sft(model=model(), train_dataset=of({"text": "a film"}))


def test_a_collator_that_would_mix_the_examples_of_a_row_is_refused(sft, tokenizer, sentences):
    rows, made = Dataset.from_dict({"text": sentences(9)}), tokenizer()
    theirs = transformers.DataCollatorForLanguageModeling(made, mlm=False)
    sft(train_dataset=rows, processing_class=made, data_collator=theirs).train()
    with pytest.raises(ArgumentError, match=r"data_collator.*position_ids"):
        sft(train_dataset=rows, processing_class=made, data_collator=theirs, packing=True)


@pytest.mark.parametrize(
    "keyword", ["infinite", "num_of_sequences", "chars_per_token", "append_concat_token", "dataset_batch_size"]
)
def test_keywords_that_have_no_use_any_more_are_refused_with_what_to_do(llama, tokenizer, run_args, keyword):
    options = {"model": llama(), "args": SFTConfig(**run_args), "processing_class": tokenizer()}
    with pytest.raises(ArgumentError, match=f"{keyword} = 3: leave it out"):
        SFTTrainer(**options, train_dataset=of({"text": "a film"}), **{keyword: 3})


def test_arguments_of_another_library_and_no_function_are_refused(llama, tokenizer, tmp_path):
    theirs = transformers.TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    with pytest.raises(ArgumentError, match="transformers.training_args.TrainingArguments.*mudarrib"):
        SFTTrainer(llama(), theirs, train_dataset=of({"text": "a film"}), processing_class=tokenizer())
    with pytest.raises(ArgumentError, match="formatting_func = 'text'"):
        SFTTrainer(
            llama(), None, train_dataset=of({"text": "a film"}), processing_class=tokenizer(), formatting_func="text"
        )
