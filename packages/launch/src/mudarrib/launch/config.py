"""An Accelerate config as it stands in its file: every key, and where it is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .errors import ConfigError

Place = tuple[int, int]


@dataclass
class Config:
    """A config: its values, and the line and column of each key.

    Attributes:
        values: The mapping, in the file's order; nested sections are mappings of their own.
        places: Dotted key to (line, column), from 1; empty for a config that was not read from a file.
        path: The file, if there is one.
    """

    values: dict[str, Any]
    places: dict[str, Place] = field(default_factory=dict)
    path: Path | None = None

    def get(self, key: str, default: Any = None) -> Any:
        """The value under a dotted key."""
        found: Any = self.values
        for part in key.split("."):
            if not isinstance(found, dict) or part not in found:
                return default
            found = found[part]
        return found

    def section(self, name: str) -> dict[str, Any]:
        """A nested section; empty if it is missing or no mapping."""
        found = self.values.get(name)
        return found if isinstance(found, dict) else {}

    @property
    def kind(self) -> str:
        """`distributed_type`, as text."""
        return str(self.values.get("distributed_type"))

    def number(self, key: str) -> int | None:
        """A value as a whole number; None if it is none."""
        value = self.get(key)
        if isinstance(value, bool):
            return None
        try:
            return int(value)
        except (TypeError, ValueError):
            return None


def read(path: str | Path) -> Config:
    """Read a config, YAML or JSON, with the place of each key.

    Raises:
        ConfigError: no such file, not YAML, or no mapping; says where.
    """
    file = Path(path).expanduser()
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError("CONFIG", str(path), f"give the path of a config file ({error.strerror})") from error
    config = parse(text)
    config.path = file
    return config


def parse(text: str) -> Config:
    """A config from its text.

    Raises:
        ConfigError: it is not YAML, or no mapping; says where.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError("CONFIG", "not valid YAML", f"{where}{problem}") from error
    if not isinstance(values, dict):
        raise ConfigError(
            "CONFIG", type(values).__name__, "give a mapping of keys to values; the file is empty or a list"
        )
    places: dict[str, Place] = {}
    note_places(node, "", places)
    return Config({str(key): value for key, value in values.items()}, places)


def note_places(node: Any, prefix: str, places: dict[str, Place]) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        places[name] = (key.start_mark.line + 1, key.start_mark.column + 1)
        note_places(value, f"{name}.", places)


def dump(config: Config) -> str:
    """The config as YAML, keys in their order, that reads back as the same values."""
    return yaml.safe_dump(config.values, sort_keys=False, default_flow_style=False)


def write(config: Config, path: str | Path) -> None:
    """Write the config to a file; folders on the way are made."""
    file = Path(path).expanduser()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dump(config), encoding="utf-8")
