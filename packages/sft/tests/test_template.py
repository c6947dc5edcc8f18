"""Rendering templates directly gives what `apply_chat_template` gives, on templates of published models."""

import random
from pathlib import Path

import pytest
import transformers
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from mudarrib.core_loop import ArgumentError
from mudarrib.sft.chat import Chat
from mudarrib.sft.formats import Format
from mudarrib.sft.masking import tokens_in_spans
from mudarrib.sft.prepare import Preparation
from mudarrib.sft.spans import bytes_of_tokens, masks_by_bytes, masks_of_spans
from mudarrib.sft.template import marks_stand_free, split_marks
from mudarrib.sft.tokenise import Recipe

TEMPLATES = sorted((Path(__file__).parent / "templates").glob("*.jinja"))
MARKED = [path for path in TEMPLATES if "training" in path.name]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


CONVERSATIONS = {
    "one turn": [user("hello there"), assistant(" yes <i>\n ")],
    "two turns": [user("hello"), assistant("good"), user("and?"), assistant("bad\n\n")],
    "system": [{"role": "system", "content": "be dull"}, user("hällo 🙂"), assistant("ünd")],
    "thoughts": [user("why"), assistant("<think>\nhm\n</think>\n\nso"), user("more"), assistant("x")],
    "thoughts apart": [user("why"), assistant("so", reasoning_content="hm")],
    "tool": [
        user("weather?"),
        assistant(
            "", tool_calls=[{"type": "function", "function": {"name": "weather", "arguments": {"city": "Bonn"}}}]
        ),
        {"role": "tool", "content": "12"},
        assistant("it is 12"),
    ],
    "parts": [user([{"type": "text", "text": "hello"}]), assistant([{"type": "text", "text": "good"}])],
}


@pytest.fixture(scope="module")
def byte_level():
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<|end|>"]
    texts = [str(message["content"]) for messages in CONVERSATIONS.values() for message in messages]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<|pad|>", bos_token="<|im_start|>", eos_token="<|im_end|>"
    )


def rendered(tokenizer, messages, options, **more):
    """What transformers makes of a conversation; None where the template refuses it or knows no such thing."""
    try:
        return tokenizer.apply_chat_template(messages, return_dict=True, **options, **more)
    except Exception:
        return None


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("options", [{}, {"tools": [TOOL]}, {"enable_thinking": False}], ids=str)
@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_texts_are_those_of_transformers(byte_level, path, options, prompt):
    byte_level.chat_template = path.read_text()
    compared = 0
    for messages in CONVERSATIONS.values():
        expected = rendered(byte_level, messages, options, tokenize=False, add_generation_prompt=prompt)
        if expected is not None:
            compared += 1
            # The second row: the first is always compared with transformers' own rendering.
            assert Chat(byte_level).render([messages] * 2, [options] * 2, prompt)[1] == expected
    assert compared >= 4


@pytest.mark.parametrize("assistant_only", [False, True])
@pytest.mark.parametrize("path", MARKED, ids=lambda path: path.stem)
def test_tokens_and_masks_are_those_of_transformers(byte_level, path, assistant_only):
    byte_level.chat_template = path.read_text()
    wanted = {}
    for name, messages in CONVERSATIONS.items():
        made = rendered(byte_level, messages, {}, return_assistant_tokens_mask=True)
        if made is not None and name != "parts" and sum(made["assistant_masks"]):
            wanted[name] = made
    assert len(wanted) >= 3
    prepare = Preparation(Recipe(byte_level, Format.MESSAGES, assistant_only=assistant_only))
    for name, made in wanted.items():
        rows = prepare(Dataset.from_list([{"messages": CONVERSATIONS[name]}] * 3), "train", False)
        for row in rows:
            assert row["input_ids"] == made["input_ids"]
            if assistant_only:
                assert [label != -100 for label in row["labels"]] == [bool(m) for m in made["assistant_masks"]]


def test_plain_conversations_are_rendered_without_transformers(byte_level, monkeypatch):
    byte_level.chat_template = MARKED[0].read_text()
    chat, calls = Chat(byte_level), []
    monkeypatch.setattr(chat, "_text", lambda *args: calls.append(args) or type(chat)._text(chat, *args))
    chat.render([CONVERSATIONS["one turn"]] * 50, [{}] * 50)
    assert chat.marked_spans([CONVERSATIONS["one turn"]] * 50, [{}] * 50) is not None
    assert len(calls) == 2, "one comparison a batch"


def test_a_conversation_that_the_template_refuses_is_named(byte_level):
    byte_level.chat_template = (
        "{% if messages[0].role != 'user' %}{{ raise_exception('begin with the user') }}{% endif %}"
    )
    rows = Dataset.from_list([{"messages": CONVERSATIONS["one turn"]}, {"messages": [assistant("first")]}])
    with pytest.raises(ArgumentError, match=r"'first'.*begin with the user"):
        Preparation(Recipe(byte_level, Format.MESSAGES))(rows, "train", False)


def test_nulls_deep_inside_are_taken_out(byte_level):
    """Arrow gives the arguments of all calls the same keys."""
    byte_level.chat_template = (
        "{% for m in messages %}{{ m.tool_calls | tojson if m.tool_calls else m.content }}{% endfor %}"
    )
    calls = [[{"function": {"name": name, "arguments": {name: 1}}}] for name in ("a", "b")]
    rows = Dataset.from_list([{"messages": [assistant(None, tool_calls=call)]} for call in calls])
    prepared = Preparation(Recipe(byte_level, Format.MESSAGES))(rows, "train", False)
    assert "null" not in byte_level.decode(prepared[0]["input_ids"] + prepared[1]["input_ids"])


def test_marks_within_what_is_changed_later_are_left_to_transformers():
    assert marks_stand_free("{% for m in messages %}{% generation %}{{ m }}{% endgeneration %}{% endfor %}")
    assert not marks_stand_free("{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x | trim }}")
    assert not marks_stand_free("{% filter trim %}{% generation %} a {% endgeneration %}{% endfilter %}")
    assert split_marks("a\ufdd0b\ufdd1c\ufdd0\ufdd1") == ("abc", [(1, 2), (3, 3)])


def by_offsets(tokenizer, text, spans):
    return tokens_in_spans(tokenizer.backend_tokenizer.encode(text, add_special_tokens=False), spans).tolist()


def test_masks_from_bytes_are_those_from_offsets(byte_level):
    """Also where letters have several bytes, where a span cuts a token in two, and where tokens were added."""
    byte_level.add_tokens(["<häh>"])
    rng = random.Random(0)
    alphabet = ["hello", " good", "\n\n", "ü", "🙂", "<|im_end|>", "<häh>", " ", "\u00a0", "bad"]
    texts = ["".join(rng.choices(alphabet, k=rng.randint(0, 12))) for _ in range(300)]
    spans = []
    for text in texts:
        cuts = sorted(rng.sample(range(len(text) + 1), k=min(len(text) + 1, 2 * rng.randint(0, 2)) // 2 * 2))
        spans.append(list(zip(cuts[::2], cuts[1::2])))
    ids, masks = masks_of_spans(byte_level, texts, spans)
    sizes = bytes_of_tokens(byte_level, len(byte_level))
    clear = sum(mask is not None for mask in masks_by_bytes(ids, texts, spans, sizes))
    assert 50 < clear < 300, "some are told by their bytes, some are not"
    for text, of, row, mask in zip(texts, spans, ids, masks):
        assert row == byte_level(text, add_special_tokens=False)["input_ids"]
        assert mask.tolist() == by_offsets(byte_level, text, of)


def test_only_vocabularies_of_bytes_are_measured(byte_level, tokenizer):
    assert bytes_of_tokens(byte_level, len(byte_level)) is not None
    assert bytes_of_tokens(tokenizer(), 30) is None


def test_what_an_earlier_call_left_in_the_tokenizer_changes_nothing(byte_level):
    byte_level(["hello", "good good"], padding="max_length", truncation=True, max_length=3)
    ids, masks = masks_of_spans(byte_level, ["hello good film", "a"], [[(0, 5)], []])
    assert byte_level.decode(ids[0]) == "hello good film" and len(ids[1]) == len(masks[1]) == 1
