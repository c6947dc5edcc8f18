"""The error that says which argument, what value, and what to do."""

from __future__ import annotations

from typing import Any


class OptionError(ValueError):
    """An option that cannot work.

    Attributes:
        argument: Its name.
        value: What was given.
        fix: What to give instead.
    """

    def __init__(self, argument: str, value: Any, fix: str) -> None:
        self.argument = argument
        self.value = value
        self.fix = fix
        super().__init__(f"{argument} = {value!r}: {fix}")
