"""The error that says which argument, what value, and what to do."""

from __future__ import annotations


class ConfigError(ValueError):
    """A config, or a request for one, that cannot work.

    Attributes:
        argument: The key, flag or file.
        value: What was given.
        fix: What to give instead.
    """

    def __init__(self, argument: str, value: object, fix: str) -> None:
        self.argument = argument
        self.value = value
        self.fix = fix
        super().__init__(f"{argument} = {value!r}: {fix}")
