"""What people read, in their language: English in the code, others by gettext catalogues beside it."""

from __future__ import annotations

import contextlib
import gettext
import os
from collections.abc import Iterator
from typing import Any

LANGUAGES = ("en", "ar")
DOMAIN = "mudarrib-launch"

_catalogue: gettext.NullTranslations = gettext.NullTranslations()


@contextlib.contextmanager
def speaking(language: str) -> Iterator[None]:
    """Speak a language, "en" or "ar", and afterwards the one from before."""
    global _catalogue
    before = _catalogue
    if language == "en":
        _catalogue = gettext.NullTranslations()
    else:
        from pathlib import Path

        _catalogue = gettext.translation(DOMAIN, Path(__file__).parent / "locale", [language])
    try:
        yield
    finally:
        _catalogue = before


def of_environment() -> str:
    """The first language of LANGUAGE, LC_ALL, LC_MESSAGES or LANG that is spoken here; English if there is none."""
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        for wanted in os.environ.get(name, "").split(":"):
            if wanted.split("_")[0].split(".")[0] in LANGUAGES:
                return wanted.split("_")[0].split(".")[0]
    return "en"


def phrase(template: str, **values: Any) -> str:
    """A sentence in the language that is spoken, its names in braces filled in."""
    said = _catalogue.gettext(template)
    return said.format(**values) if values else said


def later(text: str) -> str:
    """The text itself: marks one that reaches `phrase` through a variable, for the catalogues."""
    return text
