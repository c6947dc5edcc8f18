"""What a data set holds: text, prompt and completion, messages, or tokens; told from its columns and first row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, TypeAlias

from mudarrib.core_loop import ArgumentError

Row: TypeAlias = Mapping[str, Any]
Columns: TypeAlias = Mapping[str, list[Any]]
Message: TypeAlias = dict[str, Any]
FormattingFunc: TypeAlias = Callable[[Row], "str | list[Message] | dict[str, Any]"]


class Format(Enum):
    """The formats, each with the words that users are told."""

    TEXT = "text"
    PROMPT_COMPLETION = "prompt and completion"
    MESSAGES = "messages"
    CHAT_PROMPT_COMPLETION = "prompt and completion as messages"
    TOKENS = "tokens"

    @property
    def is_chat(self) -> bool:
        return self in (Format.MESSAGES, Format.CHAT_PROMPT_COMPLETION)

    @property
    def has_prompt(self) -> bool:
        return self in (Format.PROMPT_COMPLETION, Format.CHAT_PROMPT_COMPLETION)


def detect(row: Row, text_field: str) -> Format:
    """The format of a data set, from its first row.

    Tokens win over text, since a data set that was tokenised before often keeps its text.

    Raises:
        ArgumentError: the columns fit no format, or images are among them.
    """
    if "image" in row or "images" in row:
        raise ArgumentError(
            "train_dataset",
            sorted(row),
            "images can't be trained on here; remove the column to train on the text alone",
        )
    if "input_ids" in row:
        return Format.TOKENS
    if "prompt" in row and "completion" in row:
        chat = [is_conversation(row[name]) for name in ("prompt", "completion")]
        if chat[0] != chat[1]:
            raise ArgumentError("prompt", row["prompt"], "prompt and completion must both be strings or both messages")
        return Format.CHAT_PROMPT_COMPLETION if chat[0] else Format.PROMPT_COMPLETION
    if messages_column(row) is not None:
        return Format.MESSAGES
    if isinstance(row.get(text_field), str):
        return Format.TEXT
    raise ArgumentError(
        "train_dataset",
        sorted(row),
        f"these columns fit no known format; it needs {text_field!r} (a string; another name by dataset_text_field), "
        "or 'prompt' and 'completion', or 'messages', or 'input_ids', or give a formatting_func",
    )


def messages_column(row: Row) -> str | None:
    """The column with the conversation: `messages`, else `conversations`; None if neither is one."""
    return next((name for name in ("messages", "conversations") if is_conversation(row.get(name))), None)


def is_conversation(value: object) -> bool:
    """Whether a value is a list of messages, with role and content or, as ShareGPT has it, from and value."""
    if not isinstance(value, list | tuple) or not value or not isinstance(value[0], Mapping):
        return False
    return "role" in value[0] or {"from", "value"} <= set(value[0])


_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant"}


def clean_messages(messages: Iterable[Message]) -> list[Message]:
    """Messages as chat templates expect them: role and content, without the nulls that Arrow fills in.

    Arrow gives the arguments of all tool calls of a column the same keys, so that nulls stand deep inside, too.
    """
    cleaned = []
    for message in messages:
        if "from" in message and "role" not in message:
            message = {"role": _ROLES.get(message["from"], message["from"]), "content": message["value"]}
        kept: Message = without_nulls(message)
        if "content" not in kept:
            kept["content"] = ""
        if not isinstance(kept["content"], str):
            refuse_media(kept["content"])
        cleaned.append(kept)
    return cleaned


def refuse_media(content: Any) -> None:
    """Refuse pictures and the like: a template would put placeholders for them into the text, to be learned."""
    for part in content if isinstance(content, list) else []:
        kind = str(part.get("type", "text")) if isinstance(part, Mapping) else "text"
        if kind != "text":
            raise ArgumentError("messages", kind, "only parts of type 'text' can be trained on here; take the rest out")


def without_nulls(value: Any) -> Any:
    """A value without the keys of its dicts, however deep, whose values are None."""
    if type(value) is str:
        return value
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list | tuple) else value


def formatted(row: Row, function: FormattingFunc, text_field: str) -> dict[str, Any]:
    """What a formatting function made of a row, as columns.

    Raises:
        ArgumentError: it returned neither a string, nor messages, nor a dict of columns.
    """
    made = function(row)
    if isinstance(made, str):
        return {text_field: made}
    if is_conversation(made):
        return {"messages": made}
    if isinstance(made, dict):
        return made
    raise ArgumentError(
        "formatting_func",
        type(made).__name__,
        "for each row it must return a string, a list of messages, or a dict with the columns of a known format",
    )
