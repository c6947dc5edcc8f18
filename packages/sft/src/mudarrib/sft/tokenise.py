"""From columns of text or messages to tokens and the mask of what is learned, a batch at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from mudarrib.core_loop import ArgumentError

from .chat import Chat
from .formats import Columns, Format, without_nulls
from .masking import IGNORED, Mask, after, common_prefix
from .spans import masks_of_spans

Tokens = NDArray[np.int32]
Ids = list[list[int]]
Masks = list[Mask]


@dataclass(frozen=True)
class Recipe:
    """How rows become tokens; everything that the result depends on besides the rows.

    Attributes:
        tokenizer: A tokenizer of transformers.
        format: What the rows hold.
        text_field: Column of the text.
        completion_only: Learn the completion alone.
        assistant_only: Learn the assistant's turns alone.
        max_length: Cut after so many tokens; None for no cut.
        truncation_mode: Which end of a row is kept.
    """

    tokenizer: PreTrainedTokenizerBase
    format: Format
    text_field: str = "text"
    completion_only: bool = False
    assistant_only: bool = False
    max_length: int | None = None
    truncation_mode: Literal["keep_start", "keep_end"] = "keep_start"

    def __call__(self, columns: Columns) -> TokenRows:
        """Tokens of a batch of rows. Rows without a token to learn are left out."""
        ids, masks = _READERS[self.format](self, columns)
        rows = TokenRows.of(ids, masks).cut(self.max_length, self.truncation_mode)
        return rows.without_idle()


@dataclass(frozen=True)
class TokenRows:
    """Rows of tokens, end to end.

    Attributes:
        ids: All tokens, int32, shape (tokens,).
        lengths: Tokens of each row, shape (rows,).
        learned: Which tokens are learned, shape (tokens,); None for all.
    """

    ids: Tokens
    lengths: NDArray[np.int64]
    learned: Mask | None

    @classmethod
    def of(cls, ids: Ids, masks: Masks | None) -> TokenRows:
        lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
        flat = np.fromiter(chain.from_iterable(ids), dtype=np.int32, count=int(lengths.sum()))
        return cls(flat, lengths, None if masks is None else np.concatenate([np.zeros(0, dtype=bool), *masks]))

    @property
    def labels(self) -> Tokens | None:
        """The tokens, with -100 where nothing is learned; None where all is."""
        return None if self.learned is None else np.where(self.learned, self.ids, np.int32(IGNORED))

    def within(self) -> NDArray[np.int64]:
        """Position of each token in its row, shape (tokens,)."""
        begins = np.cumsum(self.lengths) - self.lengths
        return np.arange(len(self.ids)) - np.repeat(begins, self.lengths)

    def cut(self, max_length: int | None, mode: Literal["keep_start", "keep_end"]) -> TokenRows:
        """Rows of at most `max_length` tokens, from their start or up to their end."""
        if max_length is None or not len(self.lengths) or int(self.lengths.max()) <= max_length:
            return self
        position = self.within()
        if mode == "keep_end":
            position = np.repeat(self.lengths, self.lengths) - 1 - position
        return self.keep_tokens(position < max_length, np.minimum(self.lengths, max_length))

    def without_idle(self) -> TokenRows:
        """Rows that teach something: a first token is never predicted, so that a learned one must come after it."""
        if self.learned is None:
            useful = self.lengths > 1
        else:
            later = np.flatnonzero(self.learned & (self.within() > 0))
            row = np.searchsorted(np.cumsum(self.lengths), later, side="right")
            useful = np.bincount(row, minlength=len(self.lengths)) > 0
        if useful.all():
            return self
        return self.keep_tokens(np.repeat(useful, self.lengths), self.lengths[useful])

    def keep_tokens(self, kept: Mask, lengths: NDArray[np.int64]) -> TokenRows:
        """The rows with only the tokens that are kept; `lengths` are those of the rows that remain."""
        return TokenRows(self.ids[kept], lengths, None if self.learned is None else self.learned[kept])


def _text(recipe: Recipe, columns: Columns) -> tuple[Ids, Masks | None]:
    texts = strings(columns, recipe.text_field)
    ids = [row if text.strip() else [] for row, text in zip(encode(recipe.tokenizer, texts), texts, strict=True)]
    return with_eos(recipe.tokenizer, ids), None


def _prompt_completion(recipe: Recipe, columns: Columns) -> tuple[Ids, Masks | None]:
    prompts, completions = strings(columns, "prompt"), strings(columns, "completion")
    whole = [prompt + completion for prompt, completion in zip(prompts, completions, strict=True)]
    ids = with_eos(recipe.tokenizer, encode(recipe.tokenizer, whole))
    ids = [row if text.strip() else [] for row, text in zip(ids, completions, strict=True)]
    if not recipe.completion_only:
        return ids, None
    return ids, _after_prompts(encode(recipe.tokenizer, prompts, adds_eos=False), ids)


def _messages(recipe: Recipe, columns: Columns) -> tuple[Ids, Masks | None]:
    conversations = sequences(columns, "messages" if "messages" in columns else "conversations")
    return _conversations(recipe, conversations, template_options(columns, len(conversations)))


def _chat_prompt_completion(recipe: Recipe, columns: Columns) -> tuple[Ids, Masks | None]:
    prompts, completions = sequences(columns, "prompt"), sequences(columns, "completion")
    whole = [[*prompt, *end] if end else [] for prompt, end in zip(prompts, completions, strict=True)]
    options = template_options(columns, len(whole))
    ids, masks = _conversations(recipe, whole, options)
    if not recipe.completion_only:
        return ids, masks
    chat = Chat(recipe.tokenizer)
    asked = chat.render(prompts, options, prompt=True)
    after_prompts = _after_prompts(encode(recipe.tokenizer, asked, special=False), ids)
    if masks is None:
        return ids, after_prompts
    return ids, [mask & more for mask, more in zip(masks, after_prompts, strict=True)]


def _tokens(recipe: Recipe, columns: Columns) -> tuple[Ids, Masks | None]:
    ids = sequences(columns, "input_ids")
    masks = [np.ones(len(row), dtype=bool) for row in ids]
    for name, meaning in (("completion_mask", recipe.completion_only), ("assistant_masks", recipe.assistant_only)):
        if meaning:
            masks = [mask & (kept != 0) for mask, kept in zip(masks, beside(columns, name, ids), strict=True)]
    if "labels" in columns:
        masks = [mask & (row != IGNORED) for mask, row in zip(masks, beside(columns, "labels", ids), strict=True)]
    if "attention_mask" in columns:  # padding that was put in before would be learned, and break packing
        real = [row != 0 for row in beside(columns, "attention_mask", ids)]
        ids = [np.asarray(row)[kept].tolist() for row, kept in zip(ids, real, strict=True)]
        masks = [mask[kept] for mask, kept in zip(masks, real, strict=True)]
    return ids, None if all(mask.all() for mask in masks) else masks


def strings(columns: Columns, name: str) -> list[str]:
    """A column of texts; a null is an empty one.

    Raises:
        ArgumentError: a value is something else.
    """
    texts = ["" if text is None else text for text in columns[name]]
    for text in texts:
        if not isinstance(text, str):
            raise ArgumentError(name, text, "this column must hold strings, as its first row does")
    return texts


def sequences(columns: Columns, name: str) -> list[Any]:
    """A column of lists; a null is an empty one.

    Raises:
        ArgumentError: a value is something else.
    """
    rows = [[] if row is None else row for row in columns[name]]
    for row in rows:
        if not isinstance(row, list | tuple | np.ndarray):
            raise ArgumentError(name, row, "this column must hold lists, as its first row does")
    return [list(row) for row in rows]


def beside(columns: Columns, name: str, ids: Ids) -> list[NDArray[np.int64]]:
    """A column with a value for each token; a null is 1 for each.

    Raises:
        ArgumentError: some row has more or fewer values than tokens.
    """
    rows = [
        np.ones(len(of), np.int64) if row is None else np.asarray(row)
        for row, of in zip(columns[name], ids, strict=True)
    ]
    for row, of in zip(rows, ids, strict=True):
        if len(row) != len(of):
            raise ArgumentError(name, row.tolist(), f"a row has {len(row)} of them and {len(of)} input_ids")
    return rows


_READERS = {
    Format.TEXT: _text,
    Format.PROMPT_COMPLETION: _prompt_completion,
    Format.MESSAGES: _messages,
    Format.CHAT_PROMPT_COMPLETION: _chat_prompt_completion,
    Format.TOKENS: _tokens,
}


def _conversations(recipe: Recipe, rows: list[Any], options: list[dict[str, Any]]) -> tuple[Ids, Masks | None]:
    chat = Chat(recipe.tokenizer)
    if not recipe.assistant_only:
        return encode(recipe.tokenizer, chat.render(rows, options), special=False), None
    if not recipe.tokenizer.is_fast and not chat.marks_generation:
        raise ArgumentError(
            "assistant_only_loss",
            True,
            "the chat template has no {% generation %} marks and the tokenizer is not a fast one, so that the "
            "assistant's tokens can't be found; add the marks or use a fast tokenizer",
        )
    spoken = chat.marked_spans(rows, options) if chat.marks_generation else chat.assistant_spans(rows, options)
    if spoken is None or not recipe.tokenizer.is_fast:
        marked = chat.marked(rows, options)
        return [list(ids) for ids, _ in marked], [np.asarray(mask, dtype=bool) for _, mask in marked]
    return masks_of_spans(recipe.tokenizer, *spoken)


def template_options(columns: Columns, n_rows: int) -> list[dict[str, Any]]:
    """For each row what its template is given besides the messages: its tools and `chat_template_kwargs`."""
    tools = columns.get("tools") or [None] * n_rows
    extra = columns.get("chat_template_kwargs") or [None] * n_rows
    parsed = [without_nulls(parse_tools(tool)) for tool in tools]
    return [{**({"tools": tool} if tool else {}), **(more or {})} for tool, more in zip(parsed, extra, strict=True)]


def parse_tools(tools: Any) -> Any:
    """Tools that may stand as JSON, since a column can't hold schemas of different shapes.

    Raises:
        ArgumentError: the text is no JSON.
    """
    if not isinstance(tools, str):
        return tools
    try:
        return json.loads(tools) if tools.strip() else None
    except json.JSONDecodeError as error:
        raise ArgumentError("tools", tools, f"give a list of schemas, or JSON: {error}") from error


def encode(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], special: bool = True, adds_eos: bool = True
) -> Ids:
    """Token ids of texts; a BOS that both the text and the tokenizer bring stays single.

    Args:
        tokenizer: A tokenizer of transformers.
        texts: Any number of strings.
        special: Let the tokenizer add its special tokens; chat templates write theirs as text.
        adds_eos: Keep an EOS token that the tokenizer adds at the end.
    """
    if not len(texts):
        return []
    ids = _encode_batch(tokenizer, list(texts), special)
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    if special and bos is not None:
        ids = [row[1:] if row[:2] == [bos, bos] else row for row in ids]
    if not adds_eos and eos is not None:
        ids = [row[:-1] if len(row) > 1 and row[-1] == eos else row for row in ids]
    return ids


def _encode_batch(tokenizer: PreTrainedTokenizerBase, texts: list[str], special: bool) -> Ids:
    def by_wrapper(some: list[str]) -> Ids:
        ids: Ids = tokenizer(some, add_special_tokens=special, return_attention_mask=False, verbose=False)["input_ids"]
        return ids

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or backend.truncation is not None or backend.padding is not None:
        return by_wrapper(texts)
    # The wrapper makes a Python object of each token of each encoding, a quarter of the whole time. It may also do more
    # than the backend, in a tokenizer with code of its own: then the first text comes out different.
    backend.encode_special_tokens = tokenizer.split_special_tokens
    ids: Ids = [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=special)]
    return ids if by_wrapper(texts[:1]) == ids[:1] else by_wrapper(texts)


def with_eos(tokenizer: PreTrainedTokenizerBase, ids: Ids) -> Ids:
    """Rows that end in EOS, once."""
    eos = tokenizer.eos_token_id
    for row in ids:
        if row and row[-1] != eos:
            row.append(eos)
        elif row[-2:] == [eos, eos]:  # one from the text, one from the tokenizer
            row.pop()
    return ids


def _after_prompts(prompts: Ids, whole: Ids) -> Masks:
    return [after(common_prefix(prompt, row), len(row)) for prompt, row in zip(prompts, whole, strict=True)]
