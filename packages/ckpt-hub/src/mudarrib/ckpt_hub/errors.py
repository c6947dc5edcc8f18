"""The one error of this package: it names what is wrong, the value met, and what to do."""

from __future__ import annotations


class CheckpointError(RuntimeError):
    """A checkpoint can't be written, read or trusted.

    Attributes:
        argument: The argument, file or part that is at fault.
        value: What was found there, as text.
        fix: What the reader can do about it.
    """

    def __init__(self, argument: str, value: object, fix: str) -> None:
        self.argument = argument
        self.value: str = str(value)
        self.fix = fix
        super().__init__(f"{argument}: {self.value}. {fix}")

    def __reduce__(self) -> tuple[type[CheckpointError], tuple[str, str, str]]:
        # The default would hand the finished message to a constructor of three arguments.
        return type(self), (self.argument, self.value, self.fix)
