"""The error that says which argument, what value, and what to do."""

from __future__ import annotations

from .phrases import phrase


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


def why(error: OSError | ValueError) -> str:
    """Why a file cannot be used, in the language that is spoken."""
    if isinstance(error, FileNotFoundError):
        return phrase("there is none")
    if isinstance(error, IsADirectoryError):
        return phrase("it is a folder")
    if isinstance(error, NotADirectoryError):
        return phrase("a part of the path is no folder")
    if isinstance(error, PermissionError):
        return phrase("permission is denied")
    return getattr(error, "strerror", None) or str(error)
