"""How far a run is, as a part of its checkpoints: its state, its place in the data, what callbacks have counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from .plan import Position
from .state import ExportableState, TrainerState


class Progress:
    """The part of a checkpoint that says how far the run is: its state and its place in the data."""

    def __init__(self, state: TrainerState, position: Position, callbacks: list[Any], restore_arguments: bool) -> None:
        self.state = state
        self.position = position
        self.callbacks = callbacks
        self.restore_arguments = restore_arguments
        self.has_position: bool = False
        self.optimizer: str = ""
        self.saved_optimizer: str = ""

    def note_callbacks(self) -> None:
        """Put what callbacks have counted into the state, before it is saved."""
        self.state.stateful_callbacks = callback_states(self.callbacks)

    def state_dict(self) -> dict[str, Any]:
        return {**self.state.to_dict(), "position": asdict(self.position), "optimizer": self.optimizer}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Take over what has been done; how often to log, evaluate and save stays as the arguments say now."""
        self.saved_optimizer = state_dict.get("optimizer", self.optimizer)
        saved = TrainerState.from_dict(state_dict)
        for name in ("epoch", "global_step", "num_input_tokens_seen", "total_flos", "log_history", "train_batch_size"):
            setattr(self.state, name, getattr(saved, name))
        for name in ("best_metric", "best_global_step", "best_model_checkpoint"):
            setattr(self.state, name, getattr(saved, name))
        if "position" in state_dict:
            self.has_position = True
            for name, value in state_dict["position"].items():
                setattr(self.position, name, value)
        restore_callbacks(self.callbacks, saved.stateful_callbacks, self.restore_arguments)


def callback_states(callbacks: list[Any]) -> dict[str, Any]:
    """State of each callback that has one, by class name; a list where there are several of a class."""
    states: dict[str, Any] = {}
    for callback in callbacks:
        if not is_exportable(callback):
            continue
        name, state = type(callback).__name__, callback.state()
        if name not in states:
            states[name] = state
        elif isinstance(states[name], list):
            states[name].append(state)
        else:
            states[name] = [states[name], state]
    return states


def is_exportable(callback: Any) -> bool:
    return isinstance(callback, ExportableState) or (hasattr(callback, "from_state") and callable(callback.state))


def restore_callbacks(callbacks: list[Any], states: Mapping[str, Any], with_arguments: bool) -> None:
    """Give callbacks back what they had counted; with `with_arguments` also what they were built with."""
    for name, saved in states.items():
        for callback, state in zip(
            [callback for callback in callbacks if type(callback).__name__ == name and is_exportable(callback)],
            saved if isinstance(saved, list) else [saved],
            strict=False,
        ):
            values = {**(state["args"] if with_arguments else {}), **state["attributes"]}
            for attribute, value in values.items():
                setattr(callback, attribute, value)
