"""The events of a run, and the base class that listens to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..arguments import TrainingArguments
    from ..state import TrainerControl, TrainerState

    Returned = TrainerControl | dict[str, bool] | None

EVENTS = (
    "on_init_end",
    "on_train_begin",
    "on_train_end",
    "on_epoch_begin",
    "on_epoch_end",
    "on_step_begin",
    "on_pre_optimizer_step",
    "on_optimizer_step",
    "on_substep_end",
    "on_step_end",
    "on_evaluate",
    "on_predict",
    "on_save",
    "on_log",
    "on_prediction_step",
    "on_push_begin",
)


class TrainerCallback:
    """Watches a run and may ask for things; it does not change the loop.

    Every event gets `args`, `state` and `control`, and as keywords `model`, `processing_class`, `optimizer`,
    `lr_scheduler`, `train_dataloader`, `eval_dataloader`; `on_log` also `logs`, `on_evaluate` and `on_predict`
    also `metrics`. An event may change `control` in place, or return a control, or a dict such as
    `{"should_training_stop": True}`, or nothing. Events that a class does not define cost nothing.
    """

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> Returned:
        """The Trainer has been built."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> Returned:
        """`train()` is about to take its first step."""

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> Returned:
        """Training is over; the best model has been loaded where that was asked for."""

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> Returned:
        """A pass over the data begins."""

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> Returned:
        """A pass over the data is over, also one that was cut short."""

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> Returned:
        """Before the first batch of an optimizer step."""

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> Returned:
        """Gradients are there and clipped; the optimizer has not stepped."""

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> Returned:
        """The optimizer has stepped; gradients are still there."""

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> Returned:
        """After a batch that is not the last one of its accumulation window."""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> Returned:
        """An optimizer step is done and counted in `state.global_step`."""

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> Returned:
        """`evaluate()` is done; its result is in `metrics`."""

    def on_predict(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> Returned:
        """`predict()` is done; its result is in `metrics`."""

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Returned:
        """A checkpoint has been written."""

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Returned:
        """`logs` has been added to `state.log_history`."""

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> Returned:
        """After each batch of an evaluation or prediction."""

    def on_push_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> Returned:
        """Before something is sent to the hub."""
