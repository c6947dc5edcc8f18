"""All step counts of a run, worked out once, before it begins. Pure numbers."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .errors import ArgumentError


@dataclass
class Position:
    """How far the data has been consumed: the epoch, and batches and examples within it.

    `batches` counts micro-batches of one process, `examples` the rows of all processes together, so that a
    resumed run with another number of processes or another batch size still knows where it is.
    """

    epoch: int = 0
    batches: int = 0
    examples: int = 0

    def next_epoch(self) -> None:
        self.epoch, self.batches, self.examples = self.epoch + 1, 0, 0


@dataclass(frozen=True)
class TrainingPlan:
    """How long a run is and how its batches form optimizer steps.

    Attributes:
        accumulation: Micro-batches of an optimizer step.
        batches_per_epoch: Micro-batches of an epoch in one process; None if the data has no length.
        steps_per_epoch: Optimizer steps of an epoch, the last of which may have fewer micro-batches.
        max_steps: Optimizer steps of the whole run.
        num_epochs: Passes over the data, the last of which may end early.
        num_examples: Rows in an epoch, over all processes.
        total_batch_size: Rows of one optimizer step, over all processes.
        train_samples: Rows of the whole run, for the throughput.
    """

    accumulation: int
    batches_per_epoch: int | None
    steps_per_epoch: int
    max_steps: int
    num_epochs: int
    num_examples: int
    total_batch_size: int
    train_samples: float

    @classmethod
    def of(
        cls, args: Any, batches_per_epoch: int | None, num_examples: int | None, batch_size: int, world_size: int = 1
    ) -> TrainingPlan:
        """Plan a run.

        Args:
            args: Gives `max_steps`, `num_train_epochs` and `gradient_accumulation_steps`.
            batches_per_epoch: Length of one process's loader; None if it has none.
            num_examples: Rows in an epoch over all processes; None if not known.
            batch_size: Rows of a micro-batch in one process.
            world_size: Number of processes.

        Raises:
            ArgumentError: the data is empty, or has no length and `max_steps` is not set.
        """
        accumulation = args.gradient_accumulation_steps
        total_batch_size = batch_size * accumulation * world_size
        if batches_per_epoch is None:
            if args.max_steps <= 0:
                raise ArgumentError("max_steps", args.max_steps, "give a number of steps: the data has no length")
            samples = args.max_steps * total_batch_size
            return cls(
                accumulation, None, args.max_steps, args.max_steps, sys.maxsize, samples, total_batch_size, samples
            )
        if batches_per_epoch == 0:
            raise ArgumentError(
                "train_dataset",
                f"{num_examples} rows, no whole batch of {batch_size}",
                "give more data, a smaller per_device_train_batch_size, or dataloader_drop_last=False",
            )
        steps_per_epoch = math.ceil(batches_per_epoch / accumulation)
        rows = num_examples if num_examples is not None else batches_per_epoch * batch_size * world_size
        if args.max_steps > 0:
            max_steps = args.max_steps
            num_epochs = math.ceil(max_steps / steps_per_epoch)
            samples = max_steps * total_batch_size
        else:
            max_steps = math.ceil(args.num_train_epochs * steps_per_epoch)
            num_epochs = math.ceil(args.num_train_epochs)
            samples = rows * args.num_train_epochs
        return cls(
            accumulation, batches_per_epoch, steps_per_epoch, max_steps, num_epochs, rows, total_batch_size, samples
        )

    def epochs_left(self, position: Position, steps_done: int) -> Iterator[int]:
        """The epochs still to run; none once `max_steps` are done."""
        if steps_done < self.max_steps:
            yield from iter(range(position.epoch, self.num_epochs))

    def windows(self, batches: Iterable[Any], start: int = 0) -> Iterator[list[Any]]:
        """Group the micro-batches of an epoch, from the `start`-th on, into those of one optimizer step each."""
        window: list[Any] = []
        taken = start
        for batch in batches:
            window.append(batch)
            taken += 1
            if taken % self.accumulation == 0 or taken == self.batches_per_epoch:
                yield window
                window = []
                if taken == self.batches_per_epoch:
                    return
        if window:
            yield window

    def epoch_at(self, position: Position) -> float:
        """The fractional epoch at a position."""
        whole = self.batches_per_epoch or self.max_steps * self.accumulation
        return position.epoch + position.batches / whole
