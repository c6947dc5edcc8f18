"""Conversations as text, and the parts of that text that the assistant wrote."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from mudarrib.core_loop import ArgumentError

from .formats import Message, clean_messages
from .masking import Span
from .template import (
    BEGIN,
    END,
    DirectTemplate,
    has_generation_marks,
    holds_plain,
    is_plain,
    marks_stand_free,
    split_marks,
)

Conversations: TypeAlias = "Sequence[Sequence[Message]]"
Options: TypeAlias = "Sequence[dict[str, Any]]"

_UNSTABLE = (
    "the chat template renders earlier turns differently when later ones follow, so that the assistant's part can't be "
    "found; put {% generation %} … {% endgeneration %} around it in the template"
)


def holds(messages: list[Message], text: str) -> bool:
    """Whether a text stands in any part of a conversation."""
    return any(text in str(value) for message in messages for value in message.values())


class ChatTokenizer(Protocol):
    """What is used of a tokenizer of transformers to render conversations."""

    eos_token: str | None
    chat_template: Any
    special_tokens_map: dict[str, Any]

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any: ...

    def get_chat_template(self, chat_template: str | None = None, tools: Any = None) -> str: ...


class Chat:
    """Renders conversations with a tokenizer's template.

    Args:
        tokenizer: Has the template.

    Raises:
        ArgumentError: it has none.
    """

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self.tokenizer = tokenizer
        try:
            self.template: str = tokenizer.get_chat_template()
        except ValueError as error:
            raise ArgumentError(
                "chat_template_path",
                None,
                "the data set holds messages but the tokenizer has no chat template; set tokenizer.chat_template, or "
                "chat_template_path to a .jinja file or to a tokenizer that has one",
            ) from error
        self.marks_generation: bool = has_generation_marks(self.template)

    def render(self, conversations: Conversations, options: Options, prompt: bool = False) -> list[str]:
        """The text of each conversation; with `prompt` the assistant is asked for the next turn.

        Raises:
            ArgumentError: the template refuses a conversation.
        """
        rows = [clean_messages(messages) for messages in conversations]
        texts = self._directly(rows, options, prompt)
        if texts is not None:
            return texts
        return [self._text(row, option, prompt) for row, option in zip(rows, options, strict=True)]

    def marked_spans(self, conversations: Conversations, options: Options) -> tuple[list[str], list[list[Span]]] | None:
        """The text of each conversation, and the spans of characters that the template marks as the assistant's.

        None where only transformers itself can tell: the template changes what it has marked, or the messages hold
        more than plain values.
        """
        rows = [clean_messages(messages) for messages in conversations]
        texts = self._directly(rows, options, marks=True) if marks_stand_free(self.template) else None
        if texts is None or any(holds(row, BEGIN) or holds(row, END) for row in rows):
            return None
        found = [split_marks(text) for text in texts]
        return [text for text, _ in found], [spans for _, spans in found]

    def marked(self, conversations: Conversations, options: Options) -> list[tuple[list[int], list[int]]]:
        """For each conversation its tokens and, for each of them, 1 if the template marks it as the assistant's."""
        encode = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
        rows = [clean_messages(messages) for messages in conversations]
        made = [self._apply(row, {**option, **encode}) for row, option in zip(rows, options, strict=True)]
        return [(row["input_ids"], row["assistant_masks"]) if row else ([], []) for row in made]

    def assistant_spans(self, conversations: Conversations, options: Options) -> tuple[list[str], list[list[Span]]]:
        """The text of each conversation, and the spans of characters that the assistant wrote, for any template.

        A turn is what the text gains by it, less what the template writes to ask for it. The end of the turn
        belongs to it as far as the EOS token; white space that follows that doesn't.

        Raises:
            ArgumentError: the template changes earlier turns when later ones come, so that no turn can be told.
        """
        turns = [
            (row, i)
            for row, messages in enumerate(conversations)
            for i, message in enumerate(clean_messages(messages))
            if message["role"] == "assistant"
        ]
        texts = self.render(conversations, options)
        asked = self._beginnings(conversations, options, turns, prompt=True)
        inner = [(row, i + 1) for row, i in turns if i + 1 < len(conversations[row])]
        upto = dict(zip(inner, self._beginnings(conversations, options, inner), strict=True))
        spans: list[list[Span]] = [[] for _ in texts]
        for (row, i), begin in zip(turns, asked, strict=True):
            end = upto.get((row, i + 1), texts[row])
            if not end.startswith(begin):
                begin = self._beginnings(conversations, options, [(row, i)])[0]
            if not (texts[row].startswith(end) and end.startswith(begin)):
                raise ArgumentError("assistant_only_loss", True, _UNSTABLE)
            spans[row].append((len(begin), self._end(end, len(begin))))
        return texts, spans

    def _beginnings(
        self, conversations: Conversations, options: Options, of: list[tuple[int, int]], prompt: bool = False
    ) -> list[str]:
        """The texts of the first messages of conversations; `of` has pairs of a conversation and how many."""
        return self.render([conversations[row][:n] for row, n in of], [options[row] for row, _ in of], prompt)

    def _directly(
        self, rows: list[list[Message]], options: Options, prompt: bool = False, marks: bool = False
    ) -> list[str] | None:
        if not (rows and isinstance(self.tokenizer.chat_template, str) and self._are_plain(rows, options)):
            return None
        direct = DirectTemplate(self.template, self.tokenizer.special_tokens_map, marks)
        try:
            texts = direct.render(rows, options, prompt)
        except Exception:  # a template may raise anything; for which row shows when each is rendered alone
            return None
        first = split_marks(texts[0])[0] if marks else texts[0]
        return texts if first == self._text(rows[0], options[0], prompt) else None

    def _are_plain(self, rows: list[list[Message]], options: Options) -> bool:
        reserved = inspect.signature(self.tokenizer.apply_chat_template).parameters.keys() - {"tools"}
        return all(row and is_plain(row) for row in rows) and all(
            not option or (holds_plain(option) and not reserved & option.keys()) for option in options
        )

    def _text(self, messages: list[Message], option: dict[str, Any], prompt: bool) -> str:
        return str(self._apply(messages, {"add_generation_prompt": prompt, **option, "tokenize": False}))

    def _apply(self, messages: list[Message], kwargs: dict[str, Any]) -> Any:
        try:
            return self.tokenizer.apply_chat_template(messages, **kwargs) if messages else ""
        except Exception as error:  # of whatever kind: templates are programs
            raise ArgumentError("messages", messages, f"the chat template refuses this: {error}") from error

    def _end(self, text: str, begin: int) -> int:
        eos = self.tokenizer.eos_token
        at = text.rfind(eos, begin) if eos else -1
        if eos and at >= 0 and not text[at + len(eos) :].strip():
            return at + len(eos)
        return len(text)
