"""From data sets to loaders: which columns, which collator, which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .errors import ArgumentError
from .loading import BatchLoader, StreamLoader, is_iterable_only, length
from .logs import Logger, get_logger
from .sampling import ProcessBatches, ResumableSampler

logger: Logger = get_logger(__name__)
LABEL_COLUMNS = ("label", "label_ids")
Collator = Callable[[list[Any]], Any]


def stack_rows(rows: list[Any]) -> Any:
    """The default collator: stack each column; `label` and `label_ids` become `labels`, texts are left out.

    Args:
        rows: Dicts of numbers, arrays or tensors of equal shapes (or objects with such attributes); rows that
            are tensors or tuples are stacked as torch does.
    """
    first = rows[0]
    if isinstance(first, torch.Tensor | tuple | list):
        return torch.utils.data.default_collate(rows)
    if not isinstance(first, Mapping):
        rows = [vars(row) for row in rows]
        first = rows[0]
    batch: dict[str, Any] = {}
    for name, value in first.items():
        if value is None or isinstance(value, str):
            continue
        column = [row[name] for row in rows]
        if name in LABEL_COLUMNS:
            name = "labels"
        try:
            batch[name] = stack_column(column)
        except (ValueError, RuntimeError) as error:
            raise ArgumentError(
                "data_collator",
                f"column {name!r}",
                f"its rows cannot be stacked ({error}): give processing_class= or a data_collator that pads",
            ) from error
    return batch


def stack_column(column: list[Any]) -> torch.Tensor:
    """Numbers, arrays or tensors of equal shapes as one tensor."""
    if isinstance(column[0], torch.Tensor):
        return torch.stack(column)
    if isinstance(column[0], np.ndarray):
        return torch.from_numpy(np.stack(column))
    return torch.tensor(column)


def choose_collator(given: Collator | None, processing_class: Any) -> Collator:
    """The user's; else one that pads, where a tokenizer or feature extractor does; else `stack_rows`."""
    if given is not None:
        return given
    pads = hasattr(processing_class, "pad") and hasattr(processing_class, "model_input_names")
    if pads and not hasattr(processing_class, "image_processor"):
        from transformers import DataCollatorWithPadding

        return DataCollatorWithPadding(processing_class)  # type: ignore[no-any-return]  # transformers is untyped here
    return stack_rows


class KeepColumns:
    """A collator that drops what the model does not take from rows that are dicts."""

    def __init__(self, collator: Collator, columns: Sequence[str], name: str, model_name: str) -> None:
        self.collator = collator
        self.columns: frozenset[str] = frozenset(columns)
        self.name = name
        self.model_name = model_name
        self.told: bool = False

    def __call__(self, rows: list[Any]) -> Any:
        if rows and isinstance(rows[0], Mapping):
            keep = [name for name in rows[0] if name in self.columns]
            if len(keep) < len(rows[0]):
                self.tell(list(rows[0]), keep)
                rows = [{name: row[name] for name in keep} for row in rows]
        return self.collator(rows)

    def tell(self, given: list[str], keep: list[str]) -> None:
        if not self.told:
            report_columns(given, keep, self.columns, self.name, self.model_name)
            self.told = True


def report_columns(given: Sequence[str], keep: Sequence[str], wanted: Any, name: str, model_name: str) -> None:
    """Say which columns go unused.

    Raises:
        ArgumentError: none is left for the model.
    """
    dropped = [column for column in given if column not in keep]
    if not any(column not in (*LABEL_COLUMNS, "labels") for column in keep):
        inputs = [column for column in wanted if column not in LABEL_COLUMNS]
        raise ArgumentError(
            name,
            f"columns {list(given)}, of which {model_name} takes {list(keep) or 'none'}",
            f"{model_name} takes {inputs}: tokenize the data first, rename its columns, or set "
            "remove_unused_columns=False if your collator makes the model's inputs",
        )
    if dropped:
        logger.info("Columns of %s that %s does not take are left out: %s.", name, model_name, ", ".join(dropped))


def prune_columns(dataset: Any, columns: Sequence[str], name: str, model_name: str) -> Any:
    """A `datasets` data set without the columns that the model does not take."""
    given = dataset.column_names
    if not isinstance(given, list):
        return dataset
    keep = [column for column in given if column in columns]
    report_columns(given, keep, columns, name, model_name)
    dropped = [column for column in given if column not in keep]
    return dataset.remove_columns(dropped) if dropped else dataset


def check_no_text(dataset: Any, name: str) -> None:
    """Refuse labels that are text, which a collator that pads can make no tensor of.

    Raises:
        ArgumentError: names the column and a value.
    """
    features = getattr(dataset, "features", None) or {}
    for column in LABEL_COLUMNS:
        if getattr(features.get(column), "dtype", None) == "string":
            raise ArgumentError(
                name,
                f"column {column!r} of text",
                f"number the classes, as by dataset.class_encode_column({column!r}), or give a data_collator that does",
            )


def keep_columns(
    dataset: Any, collator: Collator, columns: Sequence[str], name: str, model_name: str
) -> tuple[Any, Collator]:
    """The data set, or where it is no table the collator, without the columns that the model does not take."""
    if hasattr(dataset, "remove_columns") and hasattr(dataset, "column_names"):
        pruned = prune_columns(dataset, columns, name, model_name)
        if type(collator).__name__ == "DataCollatorWithPadding":
            check_no_text(pruned, name)
        return pruned, collator
    return dataset, KeepColumns(collator, columns, name, model_name)


def row_lengths(dataset: Any, column: str, input_name: str) -> Any:
    """Length of each row: the column that holds it, else that of the main input.

    Raises:
        ArgumentError: rows have neither.
    """
    names = getattr(dataset, "column_names", None)
    if isinstance(names, list) and column in names:
        return np.asarray(dataset[column])
    if isinstance(names, list) and input_name in names and hasattr(dataset, "with_format"):
        lists = dataset.with_format("arrow")[input_name]
        chunks = lists.combine_chunks() if hasattr(lists, "combine_chunks") else lists
        return np.diff(chunks.offsets.to_numpy()) if hasattr(chunks, "offsets") else np.asarray(list(map(len, chunks)))
    if not isinstance(dataset[0], Mapping) or input_name not in dataset[0]:
        raise ArgumentError(
            "train_sampling_strategy",
            "group_by_length",
            f"give the rows an input {input_name!r}, or their lengths in the column that length_column_name names",
        )
    return np.fromiter((len(row[input_name]) for row in dataset), dtype=np.int64)


def build_loader(
    dataset: Any, sampler: Any, batch_size: int, collator: Collator, args: Any, *, training: bool, engine: Any
) -> Any:
    """The loader of a data set, as the `dataloader_*` arguments say.

    Args:
        dataset: Map-style or iterable.
        sampler: Order of the rows of a map-style data set, over all processes; None for its own.
        batch_size: Rows of a batch in one process.
        collator: Makes a batch of rows.
        args: The arguments.
        training: Whether a last incomplete batch may be dropped.
        engine: Gives `rank` and `world_size`.
    """
    workers = args.dataloader_num_workers
    settings: dict[str, Any] = {
        "num_workers": workers,
        "pin_memory": args.dataloader_pin_memory and engine.device.type != "cpu",
        "persistent_workers": args.dataloader_persistent_workers and workers > 0,
    }
    if workers > 0:
        settings["prefetch_factor"] = args.dataloader_prefetch_factor
        settings["multiprocessing_context"] = args.dataloader_multiprocessing_context
        settings["in_order"] = args.dataloader_in_order
    drop_last = args.dataloader_drop_last and training
    if is_iterable_only(dataset):
        return StreamLoader(
            dataset,
            collator,
            engine.rank,
            engine.world_size,
            batch_size=batch_size,
            drop_last=drop_last,
            **settings,
        )
    order = sampler if sampler is not None else ResumableSampler(dataset, shuffle=False)
    batches = ProcessBatches(order, batch_size, drop_last, engine.rank, engine.world_size)
    return BatchLoader(dataset, batches, collator, **settings)


def train_sampler(dataset: Any, args: Any, batch_size: int, input_name: str) -> ResumableSampler | None:
    """The order that `train_sampling_strategy` names; None for an iterable data set, which has its own.

    Raises:
        ArgumentError: the strategy is unknown.
    """
    if dataset is None or is_iterable_only(dataset):
        return None
    seed = args.seed if args.data_seed is None else args.data_seed
    strategy = args.train_sampling_strategy
    if strategy == "sequential":
        return ResumableSampler(dataset, seed, shuffle=False)
    if strategy == "group_by_length":
        lengths = row_lengths(dataset, args.length_column_name, input_name)
        step = batch_size * args.gradient_accumulation_steps * args.world_size
        return ResumableSampler(dataset, seed, lengths=lengths, batch_size=step)
    if strategy == "random":
        return ResumableSampler(dataset, seed)
    raise ArgumentError("train_sampling_strategy", strategy, "give random, sequential or group_by_length")


def num_examples(dataloader: Any) -> int | None:
    """Rows of a loader over all processes; None if not known."""
    if isinstance(dataloader, BatchLoader):
        rows = len(dataloader.batches.sampler)  # type: ignore[arg-type]  # every sampler here has a length
        whole = dataloader.batches.batch_size * dataloader.batches.world_size
        return rows - rows % whole if dataloader.batches.drop_last else rows
    rows_or_none = length(getattr(dataloader, "dataset", None))
    if rows_or_none is None and length(dataloader) is not None:
        return len(dataloader) * (getattr(dataloader, "batch_size", None) or 1)
    return rows_or_none
