"""From rows of any format to tokens and labels, with the traps that data sets set."""

import datasets
import numpy as np
import pytest
from datasets import Dataset, IterableDataset

from mudarrib.core_loop import ArgumentError
from mudarrib.sft.formats import Format, clean_messages, detect, formatted
from mudarrib.sft.packed import PackedDataset
from mudarrib.sft.prepare import Preparation
from mudarrib.sft.tokenise import Recipe

CONVERSATION = [
    {"role": "system", "content": "dull"},
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "good film"},
    {"role": "user", "content": "and"},
    {"role": "assistant", "content": "bad plot"},
]
MARKED = (
    "{% for m in messages %}{{ '<s> ' + m['role'] + ' ' }}{% if m['role'] == 'assistant' %}{% generation %}"
    "{{ m['content'] + ' [EOS] ' }}{% endgeneration %}{% else %}{{ m['content'] + ' [EOS] ' }}{% endif %}{% endfor %}"
)


def preparation(tokenizer, completion_only=None, formatting_func=None, strategy="bfd", num_proc=None, **recipe):
    return Preparation(Recipe(tokenizer, Format.TEXT, **recipe), completion_only, formatting_func, strategy, num_proc)


def words(tokenizer, row):
    return " ".join(tokenizer.convert_ids_to_tokens(row["input_ids"]))


def learned(tokenizer, row):
    """The words that are learned, with _ for the others."""
    labels = row["labels"] if row.get("labels") is not None else row["input_ids"]
    return " ".join("_" if label == -100 else tokenizer.convert_ids_to_tokens([label])[0] for label in labels)


@pytest.mark.parametrize(
    ("row", "format"),
    [
        ({"text": "a film"}, Format.TEXT),
        ({"prompt": "a", "completion": "film"}, Format.PROMPT_COMPLETION),
        ({"messages": CONVERSATION}, Format.MESSAGES),
        ({"conversations": [{"from": "human", "value": "hello"}]}, Format.MESSAGES),
        ({"prompt": CONVERSATION[:2], "completion": CONVERSATION[2:3]}, Format.CHAT_PROMPT_COMPLETION),
        ({"input_ids": [5], "text": "a"}, Format.TOKENS),
    ],
)
def test_the_format_is_told_from_the_first_row(row, format):
    assert detect(row, "text") is format


@pytest.mark.parametrize(
    "row", [{"body": "a film"}, {"image": 1, "text": "a"}, {"prompt": "a", "completion": CONVERSATION}, {"text": 3}]
)
def test_an_unknown_format_is_refused(row):
    with pytest.raises(ArgumentError):
        detect(row, "text")


def test_text_ends_in_eos_once(tokenizer):
    for made in (tokenizer(), tokenizer(add_eos=True)):
        rows = preparation(made)(Dataset.from_dict({"text": ["a film", "a film [EOS]"]}), "train", False)
        assert [words(made, row) for row in rows] == ["a film [EOS]"] * 2


def test_bos_stays_single(tokenizer, chatml):
    made = tokenizer(add_bos=True, template="[BOS] " + chatml)
    text = Dataset.from_dict({"text": ["a film", "[BOS] a film"]})
    assert [words(made, row) for row in preparation(made)(text, "train", False)] == ["[BOS] a film [EOS]"] * 2
    chat = Dataset.from_list([{"messages": CONVERSATION[1:3]}])
    assert words(made, preparation(made)(chat, "train", False)[0]).count("[BOS]") == 1


def test_rows_with_nothing_to_learn_are_left_out_and_counted(tokenizer, caplog):
    rows = Dataset.from_list(
        [{"prompt": "a " * 30, "completion": "film"}] * 2 + [{"prompt": "a ", "completion": "film was"}] * 3
    )
    kept = preparation(tokenizer(), max_length=16)(rows, "train", False)
    assert len(kept) == 3
    assert "2 of 5 rows left out" in caplog.text and "max_length=16" in caplog.text


def test_blank_texts_are_left_out(tokenizer):
    rows = Dataset.from_dict({"text": ["", "a film", "  ", "good"]})
    made = tokenizer(add_bos=True)
    assert [words(made, row) for row in preparation(made)(rows, "train", False)] == [
        "[BOS] a film [EOS]", "[BOS] good [EOS]",
    ]  # fmt: skip


@pytest.mark.parametrize("packing", [False, True])
def test_a_data_set_without_anything_to_learn_is_refused(tokenizer, packing):
    rows = Dataset.from_list([{"input_ids": [5, 6, 7], "labels": [-100, -100, -100]}] * 3)
    with pytest.raises(ArgumentError, match="no row is left"):
        preparation(tokenizer(), max_length=8)(rows, "train", packing)
    with pytest.raises(ArgumentError, match="no rows"):
        preparation(tokenizer(), max_length=8)(Dataset.from_dict({"text": []}), "train", packing)


def test_completions_are_learned_alone_by_default(tokenizer):
    made = tokenizer()
    rows = Dataset.from_list([{"prompt": "the film", "completion": " was good"}])
    assert learned(made, preparation(made)(rows, "train", False)[0]) == "_ _ was good [EOS]"
    assert learned(made, preparation(made, completion_only=False)(rows, "train", False)[0]) == "the film was good [EOS]"


def test_completions_of_messages(tokenizer, chatml):
    made = tokenizer(template=chatml)
    rows = Dataset.from_list([{"prompt": CONVERSATION[:4], "completion": CONVERSATION[4:]}])
    prepared = preparation(made)(rows, "train", False)[0]
    assert learned(made, prepared).strip("_ ") == "bad plot [EOS]"
    both = preparation(made, assistant_only=True, completion_only=False)(rows, "train", False)[0]
    assert learned(made, both).replace("_", "").split() == "good film [EOS] bad plot [EOS]".split()


@pytest.mark.parametrize("marks", [True, False])
def test_assistant_turns_alone_with_and_without_marks(tokenizer, chatml, marks):
    made = tokenizer(template=MARKED if marks else chatml)
    rows = Dataset.from_list([{"messages": CONVERSATION}] * 2)
    for row in preparation(made, assistant_only=True)(rows, "train", False):
        assert learned(made, row) == "_ _ _ _ _ _ _ _ _ _ good film [EOS] _ _ _ _ _ _ bad plot [EOS]"


def test_a_template_that_rewrites_earlier_turns_is_refused(tokenizer):
    shortened = "{% for m in messages %}{{ m['content'] if loop.last else m['content'][:2] }} {% endfor %}"
    rows = Dataset.from_list([{"messages": CONVERSATION}])
    with pytest.raises(ArgumentError, match="generation"):
        preparation(tokenizer(template=shortened), assistant_only=True)(rows, "train", False)


def test_tools_and_template_options_reach_the_template(tokenizer):
    template = "{{ tools[0]['name'] if tools else 'not' }} {{ mood | default('dull') }} " + MARKED
    made = tokenizer(template=template)
    rows = Dataset.from_list(
        [{"messages": CONVERSATION[:3], "tools": '[{"name": "plot"}]', "chat_template_kwargs": {"mood": "great"}}]
    )
    assert words(made, preparation(made)(rows, "train", False)[0]).startswith("plot great")


def test_nulls_that_arrow_fills_in_are_taken_out():
    assert clean_messages([{"role": "assistant", "content": None, "tool_calls": None}]) == [
        {"role": "assistant", "content": ""}
    ]
    assert clean_messages([{"from": "gpt", "value": "a"}]) == [{"role": "assistant", "content": "a"}]


def test_messages_without_a_template_are_refused(tokenizer):
    with pytest.raises(ArgumentError, match="chat_template_path"):
        preparation(tokenizer())(Dataset.from_list([{"messages": CONVERSATION}]), "train", False)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"completion_only": True}, "completion_only_loss"), ({"assistant_only": True}, "assistant_only_loss")],
)
def test_masks_that_the_format_has_not_are_refused(tokenizer, options, named):
    with pytest.raises(ArgumentError, match=named):
        preparation(tokenizer(), **options)(Dataset.from_dict({"text": ["a film"]}), "train", False)


def test_a_tokenizer_without_eos_is_refused(tokenizer):
    with pytest.raises(ArgumentError, match="eos_token"):
        preparation(tokenizer(eos=None))(Dataset.from_dict({"text": ["a film"]}), "train", False)


def test_tokens_keep_their_labels_and_lose_their_padding(tokenizer):
    rows = Dataset.from_list(
        [
            {"input_ids": [5, 6, 7, 1], "labels": [-100, 6, 7, -100], "attention_mask": [1, 1, 1, 0]},
            {"input_ids": [8, 9, 1, 1], "labels": [8, 9, -100, -100], "attention_mask": [1, 1, 0, 0]},
        ]
    )
    first, second = preparation(tokenizer())(rows, "train", False)
    assert first["input_ids"] == [5, 6, 7] and first["labels"] == [-100, 6, 7]
    assert second["input_ids"] == [8, 9] and second["labels"] == [8, 9]


def test_completion_and_assistant_masks_of_tokens(tokenizer):
    rows = Dataset.from_list([{"input_ids": [5, 6, 7], "completion_mask": [0, 1, 1], "assistant_masks": [1, 1, 0]}])
    assert preparation(tokenizer())(rows, "train", False)[0]["labels"] == [-100, 6, 7]
    assert preparation(tokenizer(), assistant_only=True)(rows, "train", False)[0]["labels"] == [-100, 6, -100]


@pytest.mark.parametrize(("mode", "kept"), [("keep_start", "a film was"), ("keep_end", "was good [EOS]")])
def test_truncation_keeps_the_end_that_is_asked_for(tokenizer, mode, kept):
    made = tokenizer()
    rows = Dataset.from_dict({"text": ["a film was good", "dull"]})
    prepared = preparation(made, max_length=3, truncation_mode=mode)(rows, "train", False)
    assert [words(made, row) for row in prepared] == [kept, "dull [EOS]"]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda row: "the " + row["a"], "the film [EOS]"),
        (lambda row: {"prompt": "the ", "completion": row["a"]}, "the film [EOS]"),
        (lambda row: [{"role": "user", "content": row["a"]}], "<s> user film [EOS]"),
    ],
)
def test_formatting_functions(tokenizer, chatml, function, expected):
    made = tokenizer(template=chatml)
    prepared = preparation(made, formatting_func=function)(Dataset.from_dict({"a": ["film"]}), "train", False)
    assert words(made, prepared[0]) == expected


def test_a_formatting_function_that_returns_something_else_is_refused():
    with pytest.raises(ArgumentError, match="formatting_func"):
        formatted({"a": 1}, lambda row: 3, "text")


def test_a_stream_gives_the_rows_of_the_data_set(tokenizer, sentences):
    made = tokenizer()
    rows = Dataset.from_dict({"text": [*sentences(30), ""]})
    whole = preparation(made)(rows, "train", False)
    stream = preparation(made)(rows.to_iterable_dataset(), "train", False)
    assert isinstance(stream, IterableDataset)
    assert [row["input_ids"] for row in stream] == whole["input_ids"]


@pytest.mark.parametrize("strategy", ["bfd", "bfd_split", "wrapped"])
def test_packed_rows_hold_all_tokens_of_all_examples(tokenizer, sentences, strategy):
    made = tokenizer()
    rows = Dataset.from_dict({"text": sentences(40)})
    plain = preparation(made)(rows, "train", False)["input_ids"]
    packed = preparation(made, strategy=strategy, max_length=12)(rows, "train", True)
    assert isinstance(packed, PackedDataset)
    assert sorted(t for i in range(len(packed)) for t in packed[i]["input_ids"].tolist()) == sorted(sum(plain, []))
    assert all(packed[i]["seq_lengths"].sum() == len(packed[i]["input_ids"]) <= 12 for i in range(len(packed)))


def test_packed_labels_follow_their_tokens(tokenizer, sentences):
    made = tokenizer()
    rows = Dataset.from_list([{"prompt": a + " ", "completion": b} for a, b in zip(sentences(20), sentences(20, 1))])
    packed = preparation(made, max_length=40)(rows, "train", True)
    plain = {tuple(row["input_ids"]): row["labels"] for row in preparation(made)(rows, "train", False)}
    for i in range(len(packed)):
        borders = np.cumsum(packed[i]["seq_lengths"])[:-1]
        for ids, labels in zip(np.split(packed[i]["input_ids"], borders), np.split(packed[i]["labels"], borders)):
            assert plain[tuple(ids.tolist())] == labels.tolist()


def test_a_packed_stream_holds_the_same_examples(tokenizer, sentences):
    rows = Dataset.from_dict({"text": sentences(50)})
    prepare = preparation(tokenizer(), max_length=16)
    packed = prepare(rows, "train", True)
    stream = list(prepare(rows.to_iterable_dataset(), "train", True))
    assert [row["input_ids"] for row in stream] == [packed[i]["input_ids"].tolist() for i in range(len(packed))]
    assert all(sum(row["seq_lengths"]) == len(row["input_ids"]) for row in stream)


def test_packing_many_chunks_reads_the_right_rows(tokenizer):
    rows = [{"input_ids": [5 + i % 9] * (2 + i % 5)} for i in range(3000)]
    joined = datasets.concatenate_datasets([Dataset.from_list(rows[:1000]), Dataset.from_list(rows[1000:])])
    packed = PackedDataset.of(joined, 32, "bfd")
    plan = packed.plan
    for row in (0, 7, len(packed) - 1):
        expected = sum((rows[i]["input_ids"] for i in plan.examples[plan.pieces(row)]), [])
        assert packed[row]["input_ids"].tolist() == expected
    shuffled = joined.shuffle(seed=0).select(range(100))
    assert PackedDataset.of(shuffled, 32, "wrapped")[0]["input_ids"].tolist() == sum(shuffled["input_ids"], [])[:32]


def test_a_second_preparation_comes_from_the_cache(tokenizer, sentences, tmp_path):
    Dataset.from_dict({"text": sentences(50)}).save_to_disk(str(tmp_path / "rows"))
    prepared = [
        preparation(tokenizer())(datasets.load_from_disk(str(tmp_path / "rows")), "train", False) for _ in range(2)
    ]
    files = [data.cache_files[0]["filename"] for data in prepared]
    assert files[0] == files[1] and prepared[0]["input_ids"] == prepared[1]["input_ids"]


def test_processes_start_only_where_they_pay(tokenizer, caplog):
    with caplog.at_level("INFO", logger="mudarrib.sft"):
        made = preparation(tokenizer(), num_proc=4)
        made(Dataset.from_dict({"text": ["a film"] * 100}), "train", False)
        made.tell()
    assert "faster in 1 process" in caplog.text
    assert caplog.text.count("taken for text, loss on all tokens") == 1


def test_a_template_without_eos_is_remarked_on(tokenizer, caplog):
    rows = Dataset.from_list([{"messages": CONVERSATION}])
    preparation(tokenizer(template=MARKED.replace("[EOS]", "")))(rows, "train", False)
    assert "never writes the EOS token" in caplog.text
    caplog.clear()
    preparation(tokenizer(template=MARKED))(rows, "train", False)
    assert not caplog.text


def test_a_tokenizer_with_code_of_its_own_is_asked_itself(tokenizer):
    made = tokenizer()

    class Lowering(type(made)):
        def __call__(self, text, **options):
            return super().__call__([row.lower() for row in text], **options)

    made.__class__ = Lowering
    assert words(made, preparation(made)(Dataset.from_dict({"text": ["A FILM"]}), "train", False)[0]) == "a film [EOS]"


def test_a_tokenizer_that_was_used_with_padding_serves(tokenizer):
    made = tokenizer()
    made(["a film", "a"], padding=True, truncation=True, max_length=1)
    rows = preparation(made)(Dataset.from_dict({"text": ["a film was", "good"]}), "train", False)
    assert [words(made, row) for row in rows] == ["a film was [EOS]", "good [EOS]"]


@pytest.fixture
def bars():
    datasets.enable_progress_bars()
    yield
    datasets.disable_progress_bars()


def test_bars_are_for_people(tokenizer, capfd, monkeypatch, bars):
    rows = Dataset.from_dict({"text": ["good film"] * 50})
    prepare = preparation(tokenizer(), max_length=8)
    prepare(rows, "train", packing=True)
    assert capfd.readouterr().err == "", "a pipe"
    assert datasets.is_progress_bar_enabled(), "as it was"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    preparation(tokenizer(), max_length=9)(rows, "train", packing=True)
    assert "Tokenizing train data set: 100%" in capfd.readouterr().err
