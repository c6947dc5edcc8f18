"""Data: order, workers, columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .field import argument


@dataclass
class DataArguments:
    dataloader_drop_last: bool = argument(False, "Leave out a last batch that is not whole, in training.")
    dataloader_num_workers: int = argument(0, "Processes that load data; 0 loads in the main one.")
    dataloader_pin_memory: bool = argument(True, "Load into pinned memory, where there is an accelerator.")
    dataloader_persistent_workers: bool = argument(False, "Keep the workers between epochs.")
    dataloader_prefetch_factor: int | None = argument(None, "Batches that each worker loads ahead.")
    dataloader_multiprocessing_context: str | None = argument(None, "How workers start: 'fork', 'spawn', 'forkserver'.")
    dataloader_in_order: bool = argument(True, "Give batches in order, even if a later one is ready sooner.")
    remove_unused_columns: bool = argument(True, "Leave out columns that the model's forward does not take.")
    label_names: list[str] | None = argument(
        None, "Inputs that are labels; by default by their names: 'label', or positions of answers."
    )
    train_sampling_strategy: str = argument(
        "random", "Order of the rows: 'random', 'sequential', or 'group_by_length' (batches of similar lengths)."
    )
    length_column_name: str = argument("length", "Column with the lengths for 'group_by_length'.")
    seed: int = argument(42, "Seed of every generator; set when the Trainer is built and when training begins.")
    data_seed: int | None = argument(None, "Seed of the order of the data; by default that of seed.")
    full_determinism: bool = argument(False, "Only deterministic algorithms, some of which are slower.")
    accelerator_config: dict[str, Any] | str | None = argument(
        None, "Settings for accelerate, as a dict or the path of a JSON file, for runs of several processes."
    )
    include_num_input_tokens_seen: str | bool = argument("no", "Count input tokens: 'all', 'non_padding' or 'no'.")
