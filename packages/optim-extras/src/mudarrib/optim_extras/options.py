"""Options of an optimizer as the user typed them, as typed values."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any

from .errors import OptionError

TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def parse(options: Mapping[str, str], defaults: Mapping[str, Any], optimizer: str) -> dict[str, Any]:
    """The defaults with the options in their place, each of its default's type.

    Args:
        options: Name to text, such as {"rank": "64"}.
        defaults: Every known option with its default; None stands for an optional number.
        optimizer: Named in errors.

    Raises:
        OptionError: an option is unknown or malformed; names it, its value, and what is known.
    """
    if not isinstance(options, Mapping):
        raise OptionError("options", options, 'give pairs of text, such as {"rank": "64"}')
    values = dict(defaults)
    for name, text in options.items():
        if name not in defaults:
            near = difflib.get_close_matches(name, list(defaults), n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            known = ", ".join(defaults) or "none"
            raise OptionError(f"option {name}", text, f"{hint}the options of {optimizer} are {known}")
        values[name] = convert(name, text, defaults[name], optimizer)
    return values


def convert(name: str, text: Any, default: Any, optimizer: str) -> Any:
    """A text as a value of the default's type."""
    lowered = str(text).strip().lower()
    if isinstance(default, bool):
        if lowered not in (*TRUE, *FALSE):
            raise OptionError(f"option {name}", text, f"{optimizer} takes true or false")
        return lowered in TRUE
    if isinstance(default, str):
        return lowered
    kind = int if isinstance(default, int) else float
    try:
        return kind(lowered)
    except ValueError:
        number = "a whole number" if kind is int else "a number"
        raise OptionError(f"option {name}", text, f"{optimizer} takes {number}, such as {default}") from None


def at_least(values: Mapping[str, Any], **least: float) -> None:
    """Check lower bounds.

    Raises:
        OptionError: a value is below its bound.
    """
    for name, bound in least.items():
        if values[name] is not None and not bound <= values[name] < math.inf:
            raise OptionError(f"option {name}", values[name], f"give a number of at least {bound}")


def one_of(values: Mapping[str, Any], **choices: tuple[str, ...]) -> None:
    """Check named choices.

    Raises:
        OptionError: a value is none of them.
    """
    for name, known in choices.items():
        if values[name] not in known:
            raise OptionError(f"option {name}", values[name], f"give one of {', '.join(known)}")
