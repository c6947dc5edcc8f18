"""Batches for causal language models: padded, or free of padding with positions that restart at each example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .masking import IGNORED

Batch = dict[str, Any]
Array = NDArray[np.int64]


@dataclass
class CausalCollator:
    """Joins tokenised examples, or packed rows, into a batch.

    A plain example has `input_ids` and may have `labels`; a packed row has `seq_lengths` too. Batches of examples get
    an attention mask made from their lengths, so that a pad token that is also EOS harms nothing. Packed batches have
    `position_ids` instead, which restart at each example.

    Attributes:
        pad_token_id: Fills `input_ids`; it is never attended to or learned.
        padding_free: Join the examples of a batch into one row.
        flatten: Join packed rows, too, into one: what FlashAttention takes. Else each stays a row of its own, which
            costs the other implementations much less.
        boundaries: Add what FlashAttention's kernels need: `cu_seq_lens_q`, `cu_seq_lens_k`, `max_length_q`,
            `max_length_k`.
        pad_to_multiple_of: Round the length of a batch up to a multiple of it.
        max_length: Cut examples that were not prepared; None for no cut.
    """

    pad_token_id: int
    padding_free: bool = False
    flatten: bool = False
    boundaries: bool = False
    pad_to_multiple_of: int | None = None
    max_length: int | None = None

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> Batch:
        """A batch of int64 tensors, each of shape (rows, longest)."""
        ids = [self._cut(row["input_ids"]) for row in examples]
        labels = [self._cut(row["labels"] if row.get("labels") is not None else row["input_ids"]) for row in examples]
        if self.padding_free or "seq_lengths" in examples[0]:
            lengths = [np.asarray(row.get("seq_lengths", [len(x)])) for row, x in zip(examples, ids, strict=True)]
            return self._packed(ids, labels, lengths)
        mask = [np.ones(len(row), dtype=np.int64) for row in ids]
        return {
            "input_ids": self._pad(ids, self.pad_token_id),
            "attention_mask": self._pad(mask, 0),
            "labels": self._pad(labels, IGNORED),
        }

    def _packed(self, ids: list[Array], labels: list[Array], lengths: list[Array]) -> Batch:
        labels = [_without_firsts(row, n) for row, n in zip(labels, lengths, strict=True)]
        if self.padding_free or self.flatten:
            ids, labels, lengths = [np.concatenate(ids)], [np.concatenate(labels)], [np.concatenate(lengths)]
        batch: Batch = {
            "input_ids": self._pad(ids, self.pad_token_id),
            "position_ids": self._pad([positions(row) for row in lengths], 0),
            "labels": self._pad(labels, IGNORED),
        }
        if self.boundaries:
            batch.update(kernel_boundaries(lengths[0], batch["input_ids"].shape[1]))
        return batch

    def _cut(self, tokens: Any) -> Array:
        return np.asarray(tokens, dtype=np.int64)[: self.max_length]

    def _pad(self, rows: list[Array], fill: int) -> torch.Tensor:
        longest = max(map(len, rows))
        if self.pad_to_multiple_of:
            longest = -(-longest // self.pad_to_multiple_of) * self.pad_to_multiple_of
        padded = np.full((len(rows), longest), fill, dtype=np.int64)
        for target, row in zip(padded, rows, strict=True):
            target[: len(row)] = row
        return torch.from_numpy(padded)


def _without_firsts(labels: Array, lengths: Array) -> Array:
    masked = labels.copy()
    masked[np.cumsum(lengths) - lengths] = IGNORED
    return masked


def positions(lengths: Array) -> Array:
    """Position of each token within its example: 0, 1, … for each length in turn.

    >>> positions(np.array([3, 2])).tolist()
    [0, 1, 2, 0, 1]
    """
    begins = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) - np.repeat(begins, lengths)


def kernel_boundaries(lengths: Array, row_length: int) -> Batch:
    """The borders of one flat row, as variable-length attention kernels take them; padding is a last example."""
    padding = row_length - int(lengths.sum())
    sizes = np.append(lengths, padding) if padding else lengths
    borders = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    longest = int(sizes.max())
    return {"cu_seq_lens_q": borders, "cu_seq_lens_k": borders, "max_length_q": longest, "max_length_k": longest}
