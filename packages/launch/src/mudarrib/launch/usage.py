"""argparse's own words in the language that is spoken: it asks its module's `_` for each of them."""

from __future__ import annotations

import argparse

from .phrases import later, phrase

WORDS = (
    later("usage: "),
    later("positional arguments"),
    later("options"),
    later("show this help message and exit"),
    later("%(prog)s: error: %(message)s\n"),
    later("argument %(argument_name)s: %(message)s"),
    later("the following arguments are required: %s"),
    later("unrecognized arguments: %s"),
    later("expected one argument"),
    later("invalid choice: %(value)r (choose from %(choices)s)"),
    later("invalid %(type)s value: %(value)r"),
    later("ambiguous option: %(option)s could match %(matches)s"),
    later("ignored explicit argument %r"),
)


def translate() -> None:
    """Let argparse speak as we do; what the catalogue does not have stays English."""
    vars(argparse)["_"] = phrase
