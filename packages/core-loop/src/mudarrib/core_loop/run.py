"""One call of `train()`: what the loop works on, and where it stands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from . import schedules
from .callbacks.handler import CallbackHandler
from .engine import Engine
from .errors import ArgumentError
from .loading import BatchLoader, StreamLoader, batches_from
from .meter import LossMeter
from .plan import Position, TrainingPlan
from .state import TrainerState

if TYPE_CHECKING:
    from .checkpointing import EpochRng
    from .trainer import Trainer


@dataclass
class Run:
    """The objects of one training run; `position` and `state` move as it goes.

    Attributes:
        started: `time.time()` at its begin.
        first_step: `state.global_step` at its begin, above 0 on resume.
        flos_per_token: Floating-point operations a token costs, forward and backward; 0 if not known.
        ignore_keys: Model outputs that evaluations leave out.
    """

    trainer: Trainer
    args: Any
    plan: TrainingPlan
    state: TrainerState
    position: Position
    events: CallbackHandler
    engine: Engine
    meter: LossMeter
    loader: Any
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: Any
    epoch_rng: EpochRng
    started: float
    flos_per_token: float = 0.0
    ignore_keys: list[str] | None = None
    first_step: int = 0
    logged_at: int = 0
    training_step: Callable[..., torch.Tensor] = field(init=False)
    steps_on_metric: bool = field(init=False)
    main_input: str = field(init=False)

    def __post_init__(self) -> None:
        self.training_step = with_three_arguments(self.trainer.training_step)
        self.steps_on_metric = schedules.follows_metric(self.scheduler)
        self.main_input = getattr(self.trainer.model, "main_input_name", "input_ids")
        self.first_step = self.logged_at = self.state.global_step

    @property
    def steps_since_log(self) -> int:
        return self.state.global_step - self.logged_at

    def windows(self, epoch: int) -> Iterator[list[Any]]:
        """What is left of an epoch, as the micro-batches of one optimizer step each."""
        start = self.position.batches
        self.position.epoch = epoch
        own = isinstance(self.loader, BatchLoader | StreamLoader)
        with self.epoch_rng.at_start(within_epoch=start > 0, replay=not own):
            batches = batches_from(self.loader, epoch, self.position.examples, start)
        empty = True
        for window in self.plan.windows(batches, start):
            empty = False
            yield window
        if empty and start == 0:
            raise ArgumentError(
                "train_dataset", f"no batch in epoch {epoch}", "give data that can be read again from its start"
            )

    def learning_rate(self) -> float:
        rate = self.optimizer.param_groups[0]["lr"]
        return float(rate)

    def finish_snapshot(self, before_backward: bool) -> None:
        """Before weights change: let a save that still copies them in the background finish its copy."""
        if self.args.background_save and before_backward == self.engine.updates_in_backward:
            self.trainer.checkpointing.store.finish_snapshot()

    def step_scheduler(self) -> None:
        if not self.steps_on_metric and not self.engine.step_was_skipped:
            self.scheduler.step()

    def count(self, window: list[Any]) -> None:
        """Note that an optimizer step over these batches is done."""
        self.position.batches += len(window)
        rows = getattr(self.loader, "batch_size", None) or self.trainer.train_batch_size
        self.position.examples += len(window) * rows * self.engine.world_size
        self.state.global_step += 1
        self.state.epoch = self.plan.epoch_at(self.position)

    def end_epoch(self) -> None:
        """Move to the next epoch, unless the run stops within this one and may be continued there."""
        whole = self.plan.batches_per_epoch
        used_up = whole is not None and self.position.batches >= whole
        if used_up or not self.events.control.should_training_stop:
            self.position.next_epoch()

    def track(self, inputs: Any) -> None:
        """Count tokens and floating-point operations of a micro-batch."""
        counted = self.args.include_num_input_tokens_seen
        if not isinstance(inputs, Mapping) or (self.flos_per_token == 0 and counted in ("no", False)):
            return
        tokens = inputs.get(self.main_input)
        if not isinstance(tokens, torch.Tensor):
            return
        self.state.total_flos += self.flos_per_token * tokens.numel()
        if counted not in ("no", False):
            self.state.num_input_tokens_seen += int(self.engine.sum(self._tokens(inputs, tokens, counted)))

    def _tokens(self, inputs: Mapping[str, Any], tokens: torch.Tensor, counted: Any) -> Any:
        if counted == "non_padding":
            mask = inputs.get("attention_mask")
            if mask is not None:
                return mask.sum()
            pad = getattr(self.trainer.processing_class, "pad_token_id", None)
            if pad is not None:
                return tokens.ne(pad).sum()
        return torch.tensor(tokens.numel())

    def evaluate(self) -> dict[str, float]:
        """Evaluate by the Trainer's `evaluate`, which may be the user's own."""
        return self.trainer.evaluate(ignore_keys=self.ignore_keys)


def with_three_arguments(training_step: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A `training_step`, also one that was overridden without `num_items_in_batch`."""
    parameters = inspect.signature(training_step).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) > 2 or any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return training_step
    return lambda model, inputs, n_items: training_step(model, inputs)
