"""Which tokens are learned: completions, assistant turns, or all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

IGNORED = -100
Mask = NDArray[np.bool_]
Span = tuple[int, int]


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many leading items two sequences share."""
    if second[: len(first)] == first:
        return len(first)
    return next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(second))


def after(n: int, length: int) -> Mask:
    """A mask of `length` that is true from position n on."""
    return np.arange(length) >= n


class Encoding(Protocol):
    """What is used of an encoding of `tokenizers`."""

    ids: list[int]

    def char_to_token(self, char_pos: int) -> int | None: ...

    def token_to_chars(self, token_index: int) -> tuple[int, int] | None: ...


def tokens_in_spans(encoding: Encoding, spans: Sequence[Span]) -> Mask:
    """The tokens that lie in one of the spans of characters; one that only reaches into a span counts as in it.

    Args:
        encoding: Of one text.
        spans: Begin and end (exclusive) of each span, in characters of the text.

    Returns:
        Shape (tokens,).
    """
    mask = np.zeros(len(encoding.ids), dtype=bool)
    for begin, end in spans:
        inside = (encoding.char_to_token(at) for at in range(begin, end))
        first = next((token for token in inside if token is not None), None)
        backwards = (encoding.char_to_token(at) for at in range(end - 1, begin - 1, -1))
        last = next((token for token in backwards if token is not None), None)
        if first is not None and last is not None:
            mask[first : _end_of_character(encoding, last) + 1] = True
    return mask


def _end_of_character(encoding: Encoding, token: int) -> int:
    """The last token of a character that several tokens make up, from the first."""
    where = encoding.token_to_chars(token)
    while token + 1 < len(encoding.ids) and where is not None and encoding.token_to_chars(token + 1) == where:
        token += 1
    return token
