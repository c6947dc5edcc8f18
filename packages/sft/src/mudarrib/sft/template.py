"""A chat template, compiled once and rendered directly.

`apply_chat_template` of transformers copies each message three times and sets up each rendering anew, which takes more
time than the rendering. For conversations of plain values the compiled template gives the same text without that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from jinja2 import Template, nodes
from transformers.utils import chat_template_utils

from .formats import Message
from .masking import Span

# Stand around what the assistant wrote: characters that Unicode sets aside for use inside of programs.
BEGIN, END = "\ufdd0", "\ufdd1"
TRANSPARENT = (nodes.If, nodes.For, nodes.With, nodes.Scope)
REASONING = {"reasoning_content", "thinking", "reasoning"}  # transformers fills in some of these from others

_MARK = re.compile(r"(\{%[-+]?\s*)(end)?generation(?=\s*[-+]?%\})")


def has_generation_marks(template: str) -> bool:
    """Whether a chat template says itself which part the assistant writes."""
    return _MARK.search(template) is not None


class DirectTemplate:
    """Renders conversations of plain values.

    Args:
        source: The template.
        variables: What it may read besides the conversation, such as the tokenizer's special tokens.
        marks: Let `BEGIN` and `END` stand around what `{% generation %}` marks as the assistant's.
    """

    def __init__(self, source: str, variables: Mapping[str, Any], marks: bool = False) -> None:
        self.template: Template = compiled(source, marks)
        self.variables: dict[str, Any] = {**self.template.globals, "tools": None, "documents": None, **variables}

    def render(
        self, rows: Sequence[list[Message]], options: Iterable[dict[str, Any]], prompt: bool = False
    ) -> list[str]:
        """The text of each conversation; with `prompt` the assistant is asked for the next turn."""
        template, write = self.template, self.template.root_render_func
        return [
            "".join(
                write(
                    template.new_context(
                        {**self.variables, "add_generation_prompt": prompt, **option, "messages": row}, shared=True
                    )
                )
            )
            for row, option in zip(rows, options, strict=True)
        ]


@lru_cache(maxsize=16)
def compiled(source: str, marks: bool) -> Template:
    """A template in the sandbox of transformers; its generation blocks are plain ones, or write marks."""
    template: Template = chat_template_utils._compile_jinja_template(source)
    if not has_generation_marks(source):
        return template
    environment = template.environment.overlay()
    environment.filters = {**environment.filters, "mark_generation": f"{BEGIN}{{}}{END}".format}
    block, end = ("filter mark_generation", "endfilter") if marks else ("with", "endwith")
    return environment.from_string(_MARK.sub(lambda found: found[1] + (end if found[2] else block), source))


@lru_cache(maxsize=16)
def marks_stand_free(source: str) -> bool:
    """Whether what generation blocks write goes straight into the text: no macro, variable or filter may change it."""
    environment = chat_template_utils._compile_jinja_template(source).environment
    return _stand_free(environment.parse(source))


def _stand_free(node: nodes.Node) -> bool:
    for child in node.iter_child_nodes():
        if isinstance(child, nodes.CallBlock) and isinstance(child.call.node, nodes.ExtensionAttribute):
            continue
        if not (_stand_free(child) if isinstance(child, TRANSPARENT) else child.find(nodes.ExtensionAttribute) is None):
            return False
    return True


def is_plain(messages: Iterable[Message]) -> bool:
    """Whether messages need none of what transformers does for objects, media and thoughts."""
    return all(
        name not in REASONING and (type(value) is str or holds_plain(value))
        for message in messages
        for name, value in message.items()
    )


def holds_plain(value: object) -> bool:
    """Whether a value is what JSON can hold."""
    if isinstance(value, dict):
        return all(type(name) is str and holds_plain(item) for name, item in value.items())
    if isinstance(value, list):
        return all(map(holds_plain, value))
    return value is None or type(value) in (str, int, float, bool)


def split_marks(text: str) -> tuple[str, list[Span]]:
    """A text without its marks, and where they stood: begin and end of each span, in characters.

    >>> split_marks("ask: \ufdd0yes\ufdd1.")
    ('ask: yes.', [(5, 8)])
    """
    parts = text.split(BEGIN)
    spans, length = [], len(parts[0])
    for part in parts[1:]:
        inside = part.find(END)
        spans.append((length, length + inside))
        length += len(part) - 1
    return text.replace(BEGIN, "").replace(END, ""), spans
