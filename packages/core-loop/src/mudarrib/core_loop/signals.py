"""SIGTERM and SIGINT: finish the step, save, and exit with a code that says so; a second one stops at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from .callbacks.base import TrainerCallback
from .logs import Logger, get_logger

if TYPE_CHECKING:
    from .run import Run

logger: Logger = get_logger(__name__)


class StopAtStepEnd(TrainerCallback):
    """Once asked, ends the run after the current step, with a checkpoint unless none are wanted."""

    def __init__(self) -> None:
        self.asked = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.asked:
            control.should_training_stop = True
            control.should_save = control.should_save or args.save_strategy != "no"


class StopOnSignal:
    """Around a run: turns the first signal into a stop after the step.

    In an interactive session, where an interrupt belongs to the person, and outside the main thread, signals
    are left alone.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.callback: StopAtStepEnd = StopAtStepEnd()
        self.received: int | None = None
        self.previous: dict[int, Any] = {}

    def __enter__(self) -> StopOnSignal:
        interactive = hasattr(sys, "ps1") or "ipykernel" in sys.modules
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM,) if interactive else (signal.SIGTERM, signal.SIGINT):
                self.previous[number] = signal.signal(number, self.receive)
        if self.previous:
            self.run.events.add_callback(self.callback)
        return self

    def receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            self.restore()
            os.kill(os.getpid(), number)
            return
        self.received = number
        self.callback.asked = True
        name = signal.Signals(number).name
        logger.warning("%s: finishing this step, then saving. Send it again to stop at once.", name)

    def restore(self) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self.previous.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore()
        self.run.events.pop_callback(self.callback)

    def exit_if_asked(self) -> None:
        """Leave the process as a signal would have: exit code 128 + its number."""
        if self.received is not None:
            name = signal.Signals(self.received).name
            logger.warning("Stopped by %s at step %s.", name, self.run.state.global_step)
            raise SystemExit(128 + self.received)
