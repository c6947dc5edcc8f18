"""The error that a user sees: which argument, which value, what to do."""

from __future__ import annotations


class ArgumentError(ValueError):
    """A bad input, found before training starts.

    Attributes:
        argument: Name of the argument, field or column.
        value: What was given.
        fix: What to do about it.
    """

    def __init__(self, argument: str, value: object, fix: str) -> None:
        super().__init__(argument, value, fix)
        self.argument = argument
        self.value = value
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.argument}={self.value!r}: {self.fix}"
