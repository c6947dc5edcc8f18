"""What people type for a key, as the value that the key holds."""

from __future__ import annotations

from typing import Any

import yaml

from . import keys
from .errors import ConfigError
from .phrases import phrase


def typed(key: str, text: str) -> Any:
    """A value from the command line or from an answer.

    Switches become booleans, counts numbers and lists lists, as YAML writes them; words stay words, also where YAML 1.1
    would take them for something else (`NO`, `off`, `0`, `1e3`, `2024-01-01`). Only null is nothing.

    Raises:
        ConfigError: nothing was typed, or it is not YAML.
    """
    if not text.strip():
        raise ConfigError(key, text, phrase("give a value after the =, or leave the key out"))
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = ...
    if key in keys.SWITCHES or key in keys.LISTS:
        if value is ...:
            raise ConfigError(key, text, phrase("write it as YAML, quotes and brackets closed"))
        return value
    if key in keys.NUMBERS and type(value) in (int, float):
        return value
    return value if value is None or isinstance(value, str) else text.strip()
