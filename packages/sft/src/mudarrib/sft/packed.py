"""Packed rows, gathered from the tokens by a stored plan: nothing is copied until a row is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NotRequired, TypedDict

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import torch
from datasets import Dataset
from numpy.typing import NDArray

from .formats import Columns
from .packing import PackingPlan, Strategy, pack

Tokens = NDArray[np.int32]


class PackedRow(TypedDict):
    """A row of several pieces of examples, end to end."""

    input_ids: Tokens
    labels: NotRequired[Tokens]
    seq_lengths: NDArray[np.int64]


class TokenColumn:
    """A column of lists of integers; single rows are views of the Arrow buffers, memory-mapped or not."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        self.offsets: list[NDArray[np.integer[Any]]] = [chunk.offsets.to_numpy() for chunk in chunks]
        self.values: list[Tokens] = [chunk.values.to_numpy() for chunk in chunks]
        self.firsts: NDArray[np.int64] = np.cumsum([0, *(len(chunk) for chunk in chunks)])

    @classmethod
    def of(cls, dataset: Dataset, name: str) -> TokenColumn:
        """A column of a data set, with its rows in the data set's order."""
        flat = dataset.flatten_indices() if dataset._indices is not None else dataset
        return cls(flat.data.table.column(name))

    def largest(self) -> int:
        """The largest token; -1 where there is none."""
        return max((int(values.max(initial=-1)) for values in self.values), default=-1)

    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each row, without reading them."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *(np.diff(offsets) for offsets in self.offsets)])

    def piece(self, row: int, start: int, length: int) -> Tokens:
        """Part of one row."""
        chunk = int(np.searchsorted(self.firsts, row, side="right")) - 1
        begin = int(self.offsets[chunk][row - self.firsts[chunk]]) + start
        view: Tokens = self.values[chunk][begin : begin + length]
        return view


class PackedDataset(torch.utils.data.Dataset[PackedRow]):
    """A map-style data set whose rows hold several examples each.

    Args:
        ids: Tokens of the examples.
        labels: Their labels; None where they are the tokens.
        plan: Which pieces stand in which row.
    """

    def __init__(self, ids: TokenColumn, labels: TokenColumn | None, plan: PackingPlan) -> None:
        self.ids = ids
        self.labels = labels
        self.plan = plan

    @classmethod
    def of(cls, tokens: Dataset, max_length: int, strategy: Strategy) -> PackedDataset:
        """Pack a data set of tokens, with or without labels."""
        ids = TokenColumn.of(tokens, "input_ids")
        labels = TokenColumn.of(tokens, "labels") if "labels" in tokens.column_names else None
        return cls(ids, labels, pack(ids.lengths(), max_length, strategy))

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, row: int) -> PackedRow:
        """One packed row; `labels` are there only where they differ from the tokens."""
        pieces = self.plan.pieces(row)
        columns = (self.plan.examples, self.plan.starts, self.plan.lengths)
        where = list(zip(*(column[pieces].tolist() for column in columns), strict=True))
        packed: PackedRow = {
            "input_ids": np.concatenate([self.ids.piece(*place) for place in where]),
            "seq_lengths": self.plan.lengths[pieces],
        }
        if self.labels is not None:
            packed["labels"] = np.concatenate([self.labels.piece(*place) for place in where])
        return packed


def pack_batch(max_length: int, strategy: Strategy) -> Callable[[Columns], dict[str, list[Any]]]:
    """A function that packs a batch of tokenised rows, for streams: memory is bounded by the batch."""

    def packed(columns: Columns) -> dict[str, list[Any]]:
        table = pa.table({name: pa.array(columns[name], pa.list_(pa.int32())) for name in ("input_ids", "labels")})
        ids, labels = (TokenColumn(table.column(name)) for name in ("input_ids", "labels"))
        rows = PackedDataset(ids, labels, pack(ids.lengths(), max_length, strategy))
        made = [rows[i] for i in range(len(rows))]
        return {
            "input_ids": [row["input_ids"].tolist() for row in made],
            "labels": [row["labels"].tolist() for row in made],
            "seq_lengths": [row["seq_lengths"].tolist() for row in made],
        }

    return packed
