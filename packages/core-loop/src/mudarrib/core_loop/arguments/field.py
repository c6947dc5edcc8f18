"""One argument: its default and its help text."""

from __future__ import annotations

import dataclasses
from typing import Any


def argument(default: Any, help: str, secret: bool = False) -> Any:  # noqa: A002  # argparse's own word for it
    """A dataclass field with a help text; lists and dicts are copied for each instance, secrets are not shown."""
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=default.copy, metadata={"help": help})
    return dataclasses.field(default=default, metadata={"help": help}, repr=not secret)
