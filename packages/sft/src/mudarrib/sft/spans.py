"""From spans of characters to masks of tokens.

A tokenizer tells where each token stands in a text, but to keep account of that takes it a third more time. The tokens
of a byte-level vocabulary tell it themselves: each character of a token is a byte of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from .masking import Mask, Span, tokens_in_spans

Ints = NDArray[np.int64]


def masks_of_spans(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], spans: list[list[Span]]
) -> tuple[list[list[int]], list[Mask]]:
    """Tokens of texts, and which of them lie in the spans of each.

    Args:
        tokenizer: A fast tokenizer of transformers; its special tokens are not added.
        texts: Any number of strings.
        spans: For each text begin and end (exclusive) of spans, in characters and in order.
    """
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # an earlier call of the tokenizer may have left these; its next one sets them anew
    backend.no_padding()
    backend.encode_special_tokens = tokenizer.split_special_tokens
    sizes = bytes_of_tokens(tokenizer, len(tokenizer))
    if sizes is None or not texts:
        return _by_offsets(backend, texts, spans)
    ids = [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]
    masks = masks_by_bytes(ids, texts, spans, sizes)
    unclear = [row for row, mask in enumerate(masks) if mask is None or row == 0]
    _, told = _by_offsets(backend, [texts[row] for row in unclear], [spans[row] for row in unclear])
    if masks[0] is not None and not np.array_equal(masks[0], told[0]):
        return _by_offsets(backend, texts, spans)
    by_row = dict(zip(unclear, told, strict=True))
    return ids, [by_row[row] if mask is None else mask for row, mask in enumerate(masks)]


def _by_offsets(backend: Any, texts: list[str], spans: list[list[Span]]) -> tuple[list[list[int]], list[Mask]]:
    encodings = backend.encode_batch(texts, add_special_tokens=False)
    return [e.ids for e in encodings], [tokens_in_spans(e, of) for e, of in zip(encodings, spans, strict=True)]


@lru_cache(maxsize=2)
def bytes_of_tokens(tokenizer: PreTrainedTokenizerBase, n_tokens: int) -> Ints | None:
    """How many bytes each token stands for, shape (tokens,); None where tokens are not made of bytes.

    Args:
        tokenizer: Of transformers.
        n_tokens: How many it has: tokens may be added later.
    """
    backend = tokenizer.backend_tokenizer
    if backend.normalizer is not None or "ByteLevel(" not in repr(backend.pre_tokenizer):
        return None
    vocabulary = tokenizer.get_vocab()
    sizes = np.zeros(max(n_tokens, *vocabulary.values()) + 1, dtype=np.int64)
    for token, number in vocabulary.items():
        sizes[number] = len(token)
    for number, token in tokenizer.added_tokens_decoder.items():
        sizes[number] = len(str(token).encode())
    return sizes


def masks_by_bytes(
    ids: Sequence[list[int]], texts: Sequence[str], spans: Sequence[list[Span]], sizes: Ints
) -> list[Mask | None]:
    """Which tokens lie in the spans; None for a text where their bytes don't tell.

    That is so where they don't add up to the text, or where a span doesn't begin and end between two tokens.
    """
    lengths = np.array([len(row) for row in ids])
    last = np.cumsum(lengths)
    ends = np.cumsum(sizes[np.fromiter(chain.from_iterable(ids), dtype=np.int64, count=int(lengths.sum()))])
    ends = np.concatenate([[0], ends])
    begin_of_row = ends[last - lengths]
    whole = ends[last] - begin_of_row == [n_bytes(text, len(text)) for text in texts]
    row_of = np.array([row for row, of in enumerate(spans) for _ in of], dtype=np.int64)
    borders = np.array(
        [(n_bytes(text, a), n_bytes(text, b)) for text, of in zip(texts, spans, strict=True) for a, b in of],
        dtype=np.int64,
    ).reshape(-1, 2)
    borders += begin_of_row[row_of, None]
    tokens = np.searchsorted(ends, borders)
    between = (ends[np.minimum(tokens, len(ends) - 1)] == borders).all(axis=1)
    whole[row_of[~between]] = False
    clear = tokens[whole[row_of]]
    steps = np.zeros(len(ends), dtype=np.int64)
    np.add.at(steps, clear[:, 0], 1)
    np.add.at(steps, clear[:, 1], -1)
    inside = np.cumsum(steps)[:-1] > 0
    rows = zip((last - lengths).tolist(), last.tolist(), whole.tolist(), strict=True)
    return [inside[first:end] if told else None for first, end, told in rows]


def n_bytes(text: str, n: int) -> int:
    """Bytes of the first n characters."""
    return n if text.isascii() else len(text[:n].encode())
