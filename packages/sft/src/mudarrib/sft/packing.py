"""Packing as pure functions: from the lengths of examples to a plan of rows. No tokens are touched here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mudarrib.core_loop import ArgumentError

Ints = NDArray[np.int64]
Strategy = Literal["bfd", "bfd_split", "wrapped"]
STRATEGIES: tuple[Strategy, ...] = ("bfd", "bfd_split", "wrapped")


@dataclass(frozen=True)
class PackingPlan:
    """Which pieces of which examples stand in which row.

    Attributes:
        examples: Example of each piece, int64, shape (pieces,), in the order in which the pieces stand in the rows.
        starts: First token of the piece within its example, shape (pieces,).
        lengths: Tokens of the piece, at least 1, shape (pieces,).
        rows: Pieces of row r are `rows[r]` to `rows[r + 1]`, shape (rows + 1,).
        max_length: Tokens that a row can hold.
    """

    examples: Ints
    starts: Ints
    lengths: Ints
    rows: Ints
    max_length: int

    def __len__(self) -> int:
        return len(self.rows) - 1

    @property
    def n_tokens(self) -> int:
        """Tokens in all rows."""
        return int(self.lengths.sum())

    @property
    def fill(self) -> float:
        """Share of the rows' room that holds tokens, 0 to 1."""
        return self.n_tokens / (len(self) * self.max_length) if len(self) else 0.0

    def pieces(self, row: int) -> slice:
        """The pieces of one row, as a slice of `examples`, `starts` and `lengths`."""
        return slice(int(self.rows[row]), int(self.rows[row + 1]))


def pack(lengths: Sequence[int] | Ints, max_length: int, strategy: Strategy = "bfd") -> PackingPlan:
    """Put examples into rows of at most `max_length` tokens.

    Args:
        lengths: Tokens of each example; 0 is allowed, such an example is left out.
        max_length: Tokens that a row can hold, at least 1.
        strategy: "bfd", best fit decreasing, longer examples are cut at `max_length`; "bfd_split", the same, but
            what is cut off becomes a piece of its own; "wrapped", examples end to end, cut wherever a row is full.

    Returns:
        The plan. Rows come in the order of their first example, and examples in a row in theirs, so that the plan
        depends on nothing but the arguments.

    Raises:
        ArgumentError: an unknown strategy, `max_length` below 1, or a negative length.
    """
    if max_length < 1:
        raise ArgumentError("max_length", max_length, "a packed row holds at least 1 token")
    if strategy not in STRATEGIES:
        raise ArgumentError("packing_strategy", strategy, f"choose one of {', '.join(STRATEGIES)}")
    sizes = np.asarray(lengths, dtype=np.int64)
    if sizes.size and int(sizes.min()) < 0:
        raise ArgumentError("lengths", int(sizes.min()), "a length can't be negative")
    if strategy == "wrapped":
        return _wrapped(sizes, max_length)
    examples, starts, pieces = _split(sizes, max_length) if strategy == "bfd_split" else _cut(sizes, max_length)
    row_of = best_fit_decreasing(pieces, max_length)
    return _ordered(examples, starts, pieces, row_of, max_length)


def best_fit_decreasing(lengths: Ints, capacity: int) -> Ints:
    """The row of each piece, by best fit decreasing (Johnson, "Near-optimal bin packing algorithms", 1973).

    Pieces of one length, and rows with one amount of room, are handled together: the cost is in the number of
    distinct lengths, not of pieces.

    Args:
        lengths: Tokens of each piece, 1 to `capacity`, shape (pieces,).
        capacity: Tokens that a row can hold.

    Returns:
        Number of the row of each piece, int64, shape (pieces,).
    """
    counts = np.bincount(lengths, minlength=capacity + 1)
    shelf = _Shelf(capacity)
    for length in np.flatnonzero(counts)[::-1].tolist():
        shelf.place(length, int(counts[length]))
    first, rows_used, per_row = (np.asarray(column, dtype=np.int64) for column in shelf.columns())
    placed = rows_used * per_row
    within = np.arange(len(lengths)) - np.repeat(np.cumsum(placed) - placed, placed)
    row_of = np.empty(len(lengths), dtype=np.int64)
    row_of[_longest_first(lengths, capacity)] = np.repeat(first, placed) + within // np.repeat(per_row, placed)
    return row_of


class _Shelf:
    """Open rows, grouped by the room left in them; a group is a list of ranges of row numbers."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.n_rows = 0
        self.ranges: dict[int, list[tuple[int, int]]] = {}
        self.rooms = 0  # bit r is set when rows with room r exist: the next room >= n is one shift away
        self.moves: list[tuple[int, int, int]] = []

    def place(self, length: int, count: int) -> None:
        """Put `count` pieces of one length where the least room is left over."""
        while count:
            fitting = self.rooms >> length
            room = length + (fitting & -fitting).bit_length() - 1 if fitting else self.capacity
            begin, end = self._take(room) if fitting else self._open(count, length)
            per_row = min(room // length, count)
            n_rows = min(end - begin, count // per_row)
            self.moves.append((begin, n_rows, per_row))
            count -= n_rows * per_row
            self._give(room - per_row * length, begin, begin + n_rows)
            self._give(room, begin + n_rows, end)

    def columns(self) -> tuple[list[int], list[int], list[int]]:
        """First row, number of rows, and pieces a row, of each placement in turn."""
        return [m[0] for m in self.moves], [m[1] for m in self.moves], [m[2] for m in self.moves]

    def _open(self, count: int, length: int) -> tuple[int, int]:
        begin = self.n_rows
        self.n_rows += -(-count // (self.capacity // length))
        return begin, self.n_rows

    def _take(self, room: int) -> tuple[int, int]:
        group = self.ranges[room]
        taken = group.pop()
        if not group:
            self.rooms ^= 1 << room
        return taken

    def _give(self, room: int, begin: int, end: int) -> None:
        if room and begin < end:
            self.ranges.setdefault(room, []).append((begin, end))
            self.rooms |= 1 << room


def _longest_first(lengths: Ints, capacity: int) -> Ints:
    # numpy sorts 16-bit integers by radix, in linear time; wider ones it doesn't.
    keys = capacity - lengths
    return np.argsort(keys.astype(np.uint16) if capacity < 2**16 else keys, kind="stable")


def _ordered(examples: Ints, starts: Ints, lengths: Ints, row_of: Ints, max_length: int) -> PackingPlan:
    """Number the rows by their first piece, and put the pieces of a row in their own order."""
    n_rows = int(row_of.max()) + 1 if len(row_of) else 0
    first = np.empty(n_rows, dtype=np.int64)
    backwards = np.arange(len(row_of))[::-1]
    first[row_of[::-1]] = backwards  # the last write wins: the first piece of each row
    rank = np.empty(n_rows, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(n_rows)
    ranked = rank[row_of]
    order = _stable_order(ranked, n_rows)
    rows = np.concatenate([[0], np.cumsum(np.bincount(ranked, minlength=n_rows))]).astype(np.int64)
    return PackingPlan(examples[order], starts[order], lengths[order], rows, max_length)


def _stable_order(keys: Ints, n_keys: int) -> Ints:
    return np.argsort(keys.astype(np.uint16) if n_keys < 2**16 else keys, kind="stable")


def _cut(sizes: Ints, max_length: int) -> tuple[Ints, Ints, Ints]:
    examples = np.flatnonzero(sizes)
    return examples, np.zeros_like(examples), np.minimum(sizes[examples], max_length)


def _split(sizes: Ints, max_length: int) -> tuple[Ints, Ints, Ints]:
    n_pieces = -(-sizes // max_length)
    examples = np.repeat(np.arange(len(sizes)), n_pieces)
    piece = np.arange(len(examples)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)
    starts = piece * max_length
    return examples, starts, np.minimum(sizes[examples] - starts, max_length)


def _wrapped(sizes: Ints, max_length: int) -> PackingPlan:
    """Cut the examples, laid end to end, at every multiple of `max_length`."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    borders = np.union1d(np.concatenate([[0], ends]), np.arange(0, total + 1, max_length))
    begins = np.append(borders[borders < total], total)
    lengths = np.diff(begins)
    begins = begins[:-1]
    examples = np.searchsorted(ends, begins, side="right")
    starts = begins - (ends - sizes)[examples]
    n_rows = -(-total // max_length)
    rows = np.searchsorted(begins, np.arange(n_rows + 1) * max_length)
    return PackingPlan(examples, starts, lengths, rows.astype(np.int64), max_length)
