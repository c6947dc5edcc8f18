"""Conversations as text, and the parts of that text that the assistant wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from mudarrib.core_loop import ArgumentError

from .formats import Message, clean_messages
from .masking import Span, has_generation_marks

Conversations: TypeAlias = "Sequence[Sequence[Message]]"
Options: TypeAlias = "Sequence[dict[str, Any]]"

_UNSTABLE = (
    "the chat template renders earlier turns differently when later ones follow, so that the assistant's part can't be "
    "found; put {% generation %} … {% endgeneration %} around it in the template"
)


class ChatTokenizer(Protocol):
    """What is used of a tokenizer of transformers to render conversations."""

    eos_token: str | None

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
            self.template = tokenizer.get_chat_template()
        except ValueError as error:
            raise ArgumentError(
                "chat_template_path",
                None,
                "the data set holds messages but the tokenizer has no chat template; set tokenizer.chat_template, or "
                "chat_template_path to a .jinja file or to a tokenizer that has one",
            ) from error
        self.marks_generation = has_generation_marks(self.template)

    def render(self, conversations: Conversations, options: Options, prompt: bool = False) -> list[str]:
        """The text of each conversation; with `prompt` the assistant is asked for the next turn."""
        return [str(text) for text in self._apply(conversations, options, tokenize=False, add_generation_prompt=prompt)]

    def marked(self, conversations: Conversations, options: Options) -> list[tuple[list[int], list[int]]]:
        """For each conversation its tokens and, for each of them, 1 if the template marks it as the assistant's."""
        encode = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
        return [(row["input_ids"], row["assistant_masks"]) for row in self._apply(conversations, options, **encode)]

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
        option_of = [options[row] for row, _ in turns]
        texts = self.render(conversations, options)
        upto = self.render([conversations[row][: i + 1] for row, i in turns], option_of)
        asked = self.render([conversations[row][:i] for row, i in turns], option_of, prompt=True)
        spans: list[list[Span]] = [[] for _ in texts]
        for (row, i), end, begin in zip(turns, upto, asked, strict=True):
            if not end.startswith(begin):
                begin = self.render([conversations[row][:i]], [options[row]])[0]
            if not (texts[row].startswith(end) and end.startswith(begin)):
                raise ArgumentError("assistant_only_loss", True, _UNSTABLE)
            spans[row].append((len(begin), self._end(end, len(begin))))
        return texts, spans

    def _apply(self, conversations: Conversations, options: Options, **kwargs: Any) -> list[Any]:
        cleaned = [clean_messages(messages) for messages in conversations]
        if not (cleaned and all(cleaned)) or any(options):
            return [
                self.tokenizer.apply_chat_template(messages, **kwargs, **option) if messages else ""
                for messages, option in zip(cleaned, options, strict=True)
            ]
        made = self.tokenizer.apply_chat_template(cleaned, **kwargs)  # one call for all is twice as fast
        if isinstance(made, list):
            return made
        return [{name: made[name][row] for name in ("input_ids", "assistant_masks")} for row in range(len(cleaned))]

    def _end(self, text: str, begin: int) -> int:
        eos = self.tokenizer.eos_token
        at = text.rfind(eos, begin) if eos else -1
        if eos and at >= 0 and not text[at + len(eos) :].strip():
            return at + len(eos)
        return len(text)
