"""A data set of any known format, map-style or streaming, to one of tokens."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from datasets import Dataset, IterableDataset

from mudarrib.core_loop import ArgumentError

from .bars import bars_for_people
from .formats import Columns, Format, FormattingFunc, detect, formatted
from .packed import PackedDataset, pack_batch
from .packing import Strategy
from .tokenise import Recipe, TokenRows

logger: logging.Logger = logging.getLogger(__name__)
Data: TypeAlias = "Dataset | IterableDataset"

ROWS_PER_PROCESS = 10_000
STREAM_BUFFER = 4_096
ROWS_LOOKED_AT = 100


@dataclass(frozen=True)
class Preparation:
    """How the data sets of a run are prepared.

    Attributes:
        recipe: How rows become tokens; its format is found anew for each data set.
        completion_only: What the user asked for; None leaves it to the format.
        formatting_func: Applied to each row first.
        strategy: How to pack; "bfd" cuts long rows, the others keep all tokens.
        num_proc: Most processes to tokenise with.
        shuffle_seed: Shuffle the rows once with this seed; None leaves them in place.
        notes: What was found out, for `tell`: a trainer sets up logging after its data are there.
    """

    recipe: Recipe
    completion_only: bool | None = None
    formatting_func: FormattingFunc | None = None
    strategy: Strategy = "bfd"
    num_proc: int | None = None
    shuffle_seed: int | None = None
    notes: list[str] = field(default_factory=list)

    def __call__(self, dataset: Data, name: str, packing: bool) -> Data | PackedDataset:
        """The data set with columns `input_ids` and, where not all is learned, `labels`; packed if asked for.

        Raises:
            ArgumentError: the format is unknown, the options don't suit it, or no row is left to learn from.
        """
        with bars_for_people():
            return self._prepared(dataset, name, packing)

    def _prepared(self, dataset: Data, name: str, packing: bool) -> Data | PackedDataset:
        dataset = with_formatting(dataset, self.formatting_func, self.recipe.text_field)
        recipe = self.recipe_for(telling_row(dataset, name, self.recipe), cut=not packing or self.strategy == "bfd")
        if self.shuffle_seed is not None:
            dataset = dataset.shuffle(seed=self.shuffle_seed)
        self.notes.append(f"{name} data set: taken for {recipe.format.value}, loss on {learned_part(recipe)}")
        if isinstance(dataset, Dataset):
            tokens = tokenised(dataset, recipe, name, self.processes(len(dataset), name))
            return PackedDataset.of(tokens, packed_length(self.recipe), self.strategy) if packing else tokens
        stream = dataset.map(_Streamed(recipe, name), batched=True, remove_columns=list(first_row(dataset, name)))
        if not packing:
            return stream
        pack = pack_batch(packed_length(self.recipe), self.strategy)
        return stream.map(pack, batched=True, batch_size=STREAM_BUFFER, remove_columns=["input_ids", "labels"])

    def processes(self, n_rows: int, name: str) -> int:
        """With how many processes to tokenise: only those that pay, since below some size each makes it slower."""
        chosen = max(1, min(self.num_proc or 1, n_rows // ROWS_PER_PROCESS))
        if self.num_proc and chosen < self.num_proc:
            self.notes.append(f"{name} data set: {n_rows} rows are tokenised faster in {chosen} process(es)")
        return chosen

    def tell(self) -> None:
        """Log the notes, once."""
        for note in self.notes:
            logger.info(note)
        self.notes.clear()

    def recipe_for(self, row: dict[str, Any], cut: bool) -> Recipe:
        """The recipe for a data set with such a first row."""
        kind = detect(row, self.recipe.text_field)
        recipe = replace(
            self.recipe,
            format=kind,
            completion_only=self._completion_only(kind, row),
            max_length=self.recipe.max_length if cut else None,
        )
        _check_assistant_only(recipe, row)
        if recipe.tokenizer.eos_token_id is None and kind in (Format.TEXT, Format.PROMPT_COMPLETION):
            raise ArgumentError(
                "eos_token",
                None,
                "the tokenizer has no EOS token, so that the model would never learn to stop; name one",
            )
        return recipe

    def _completion_only(self, kind: Format, row: dict[str, Any]) -> bool:
        possible = kind.has_prompt or (kind is Format.TOKENS and "completion_mask" in row)
        if self.completion_only is None:
            return possible
        if self.completion_only and not possible and "labels" not in row:
            raise ArgumentError(
                "completion_only_loss",
                True,
                f"the data set holds {kind.value}, where no completion is told apart; give it 'prompt' and "
                "'completion' columns, or leave completion_only_loss unset",
            )
        return self.completion_only and possible


def _check_assistant_only(recipe: Recipe, row: dict[str, Any]) -> None:
    if recipe.assistant_only and not recipe.format.is_chat and "assistant_masks" not in row:
        raise ArgumentError(
            "assistant_only_loss",
            True,
            f"the data set holds {recipe.format.value}, where no assistant speaks; it needs messages (or, with "
            "tokens, an 'assistant_masks' column)",
        )


def learned_part(recipe: Recipe) -> str:
    """What is learned, in words."""
    parts = [
        words
        for asked, words in (
            (recipe.completion_only, "the completion"),
            (recipe.assistant_only, "the assistant's turns"),
            (recipe.format is Format.TOKENS, "what its labels say"),
        )
        if asked
    ]
    return " and ".join(parts) or "all tokens"


def packed_length(recipe: Recipe) -> int:
    """The length of a packed row.

    Raises:
        ArgumentError: `max_length` is None.
    """
    if recipe.max_length is None:
        raise ArgumentError("max_length", None, "packing needs the length of a row; set max_length")
    return recipe.max_length


def first_row(dataset: Data, name: str) -> dict[str, Any]:
    """The first row of a data set.

    Raises:
        ArgumentError: it has none.
    """
    row = next(iter(dataset), None)
    if row is None:
        raise ArgumentError(f"{name}_dataset", 0, "the data set has no rows")
    return dict(row)


def telling_row(dataset: Data, name: str, recipe: Recipe) -> dict[str, Any]:
    """The first row that tells the format: rows before it may hold nulls or empty lists. Else the first of all."""
    for row in islice(dataset, ROWS_LOOKED_AT):
        with contextlib.suppress(ArgumentError):
            detect(row, recipe.text_field)
            return dict(row)
    return first_row(dataset, name)


def with_formatting(dataset: Data, function: FormattingFunc | None, text_field: str) -> Data:
    """The data set after the user's formatting function."""
    if function is None:
        return dataset

    def apply(row: dict[str, Any]) -> dict[str, Any]:
        return formatted(row, function, text_field)

    names = list(first_row(dataset, "train"))
    made = apply(first_row(dataset, "train"))
    shown = {"desc": "Formatting"} if isinstance(dataset, Dataset) else {}
    return dataset.map(apply, remove_columns=[name for name in names if name not in made], **shown)


def tokenised(dataset: Dataset, recipe: Recipe, name: str, processes: int) -> Dataset:
    """Tokenise a map-style data set, with a progress bar and the cache of `datasets`."""
    tokens = (
        dataset.with_format("arrow")
        .map(
            _Tabled(recipe),
            batched=True,
            remove_columns=dataset.column_names,
            num_proc=processes if processes > 1 else None,
            desc=f"Tokenizing {name} data set",
        )
        .with_format(None)
    )
    left_out = len(dataset) - len(tokens)
    if not len(tokens):
        raise ArgumentError(f"{name}_dataset", len(dataset), _nothing_left(recipe))
    if recipe.format.is_chat:
        _check_end(recipe, tokens[0]["input_ids"])
    if left_out:
        logger.warning("%s data set: %d of %d rows left out: %s", name, left_out, len(dataset), _why(recipe))
    return tokens


def _check_end(recipe: Recipe, ids: list[int]) -> None:
    eos = recipe.tokenizer.eos_token_id
    if eos not in ids and len(ids) != recipe.max_length:
        logger.warning(
            "The chat template never writes the EOS token %r: the model won't learn to end a turn. Write it in the "
            "template, or name the token that ends a turn as eos_token.",
            recipe.tokenizer.eos_token,
        )


def _why(recipe: Recipe) -> str:
    cut = (
        "" if recipe.max_length is None else f", or cut at max_length={recipe.max_length} before what is to be learned"
    )
    return f"empty, without a token to learn{cut}"


def _nothing_left(recipe: Recipe) -> str:
    return f"no row is left to learn from: each is {_why(recipe)}; check the masks and max_length"


class _Tabled:
    """A recipe on Arrow tables: no token becomes a Python object on the way to the file."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def __call__(self, table: pa.Table) -> pa.Table:
        return as_table(self.recipe(table.to_pydict()), always_labels=needs_labels(self.recipe, table.column_names))


class _Streamed:
    """A recipe on dicts of columns, for streams; says once if it leaves rows out."""

    def __init__(self, recipe: Recipe, name: str) -> None:
        self.recipe = recipe
        self.name = name
        self.told = False

    def __call__(self, columns: Columns) -> dict[str, list[Any]]:
        rows = self.recipe(columns)
        given = len(next(iter(columns.values())))
        left_out = given - len(rows.lengths)
        if left_out and not self.told:
            self.told = True
            logger.warning("%s: %d of %d rows of a batch left out: %s", self.name, left_out, given, _why(self.recipe))
        columns_of_tokens: dict[str, list[Any]] = as_table(rows, always_labels=True).to_pydict()
        return columns_of_tokens


def needs_labels(recipe: Recipe, names: list[str]) -> bool:
    """Whether some row may have a masked token, so that all batches must agree on a `labels` column."""
    return recipe.completion_only or recipe.assistant_only or "labels" in names


def as_table(rows: TokenRows, always_labels: bool) -> pa.Table:
    """Token rows as an Arrow table."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(rows.lengths)]).astype(np.int32))
    labels = rows.labels if always_labels or rows.learned is not None else None
    if labels is None and always_labels:
        labels = rows.ids
    columns = {"input_ids": rows.ids} if labels is None else {"input_ids": rows.ids, "labels": labels}
    return pa.table({name: pa.ListArray.from_arrays(offsets, pa.array(flat)) for name, flat in columns.items()})
