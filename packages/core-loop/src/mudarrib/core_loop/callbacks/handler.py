"""Calls the callbacks: each event costs only what somebody listens to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import ArgumentError
from ..logs import Logger, get_logger
from ..state import TrainerControl, TrainerState
from .base import EVENTS, TrainerCallback

logger: Logger = get_logger(__name__)
CONTROL_FIELDS = tuple(f.name for f in dataclasses.fields(TrainerControl))

# What the loop clears before an event: a request holds for the run, the epoch or the step it was made in.
CLEARED_BEFORE: dict[str, tuple[str, ...]] = {
    "on_train_begin": ("should_training_stop",),
    "on_epoch_begin": ("should_epoch_stop",),
    "on_step_begin": ("should_log", "should_evaluate", "should_save"),
    "on_evaluate": ("should_evaluate",),
    "on_save": ("should_save",),
    "on_log": ("should_log",),
}


def as_instances(callbacks: Any) -> list[Any]:
    """One callback or a list of them, each a class or an instance, as a list of instances."""
    if callbacks is None:
        return []
    given = list(callbacks) if isinstance(callbacks, Iterable) and not isinstance(callbacks, type) else [callbacks]
    instances = [callback() if isinstance(callback, type) else callback for callback in given]
    for callback in instances:
        if not any(hasattr(callback, event) for event in EVENTS):
            raise ArgumentError(
                "callbacks", callback, "pass TrainerCallback classes or instances, which define events such as on_log"
            )
    return instances


def listens(callback: Any, event: str) -> bool:
    """Whether this callback does something at the event, rather than inherit an empty one."""
    method = getattr(callback, event, None)
    function = getattr(method, "__func__", method)
    return callable(method) and getattr(function, "__qualname__", "") != f"TrainerCallback.{event}"


class CallbackHandler:
    """Holds the callbacks and fires the events on those that listen.

    `references` are the objects every event is given as keywords (model, optimizer, loaders ...).
    """

    def __init__(self, callbacks: Iterable[Any], args: Any, state: TrainerState, control: TrainerControl) -> None:
        self.callbacks: list[Any] = list(callbacks)
        self.args = args
        self.state = state
        self.control = control
        self.references: dict[str, Any] = dict.fromkeys(
            ("model", "processing_class", "optimizer", "lr_scheduler", "train_dataloader", "eval_dataloader")
        )
        self._listeners: dict[str, list[tuple[str, Callable[..., Any]]]] = {}

    @property
    def callback_list(self) -> str:
        return "\n".join(type(callback).__name__ for callback in self.callbacks)

    def add_callback(self, callback: Any) -> None:
        (instance,) = as_instances(callback)
        if type(instance) in map(type, self.callbacks):
            logger.warning("There is already a %s among the callbacks; now there are two.", type(instance).__name__)
        self.callbacks.append(instance)
        self._listeners.clear()

    def pop_callback(self, callback: Any) -> Any | None:
        """Remove and return the first callback of this class, or this instance; None if it is not there."""
        for candidate in self.callbacks:
            if candidate is callback or (isinstance(callback, type) and isinstance(candidate, callback)):
                self.callbacks.remove(candidate)
                self._listeners.clear()
                return candidate
        return None

    def fire(self, event: str, **extra: Any) -> TrainerControl:
        """Call every callback that listens to `event`; an exception in one names it."""
        control = self.control
        for name in CLEARED_BEFORE.get(event, ()):
            setattr(control, name, False)
        listeners = self._listeners.get(event)
        if listeners is None:
            listeners = self._listeners[event] = [
                (type(callback).__name__, getattr(callback, event))
                for callback in self.callbacks
                if listens(callback, event)
            ]
        for name, method in listeners:
            try:
                returned = method(self.args, self.state, control, **self.references, **extra)
            except Exception as error:
                error.add_note(f"raised by the callback {name} in {event}, at step {self.state.global_step}")
                raise
            if returned is not None and returned is not control:
                apply(returned, control, f"{name}.{event}")
        return control


def apply(returned: Any, control: TrainerControl, where: str) -> None:
    """Write into `control` what an event returned: another control object, or a dict of its fields."""
    if isinstance(returned, dict):
        unknown = sorted(set(returned) - set(CONTROL_FIELDS))
        if unknown:
            raise ArgumentError(f"the dict returned by {where}", unknown, f"its keys may be {list(CONTROL_FIELDS)}")
        values = returned
    elif all(hasattr(returned, name) for name in CONTROL_FIELDS):
        values = {name: getattr(returned, name) for name in CONTROL_FIELDS}
    else:
        raise ArgumentError(f"what {where} returned", returned, "return the control, a dict of its fields, or nothing")
    for name, value in values.items():
        setattr(control, name, bool(value))


__all__ = ["CallbackHandler", "TrainerCallback", "apply", "as_instances"]
