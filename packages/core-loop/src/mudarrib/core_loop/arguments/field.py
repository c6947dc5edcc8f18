"""One argument: its default and its help text."""

from __future__ import annotations

import dataclasses
from typing import Any


def argument(default: Any, help: str) -> Any:  # noqa: A002  # argparse's and the field's own word for it
    """A dataclass field with a help text; lists and dicts are copied for each instance."""
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=default.copy, metadata={"help": help})
    return dataclasses.field(default=default, metadata={"help": help})
