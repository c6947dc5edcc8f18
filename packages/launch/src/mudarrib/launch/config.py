"""An Accelerate config as it stands in its file: every key, and where it is written."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .context import Context
from .errors import ConfigError
from .phrases import phrase

Place = tuple[int, int]
Span = tuple[int, int]


@dataclass
class Config:
    """A config: its values, and the line and column of each key.

    Attributes:
        values: The mapping, in the file's order; nested sections are mappings of their own.
        places: Dotted key to (line, column), from 1; empty for a config that was not read from a file.
        path: The file, if there is one.
        text: The file's text.
        spans: Dotted key to where its name and its plain value stand in the text.
        context: What it is compared with: the model, the training arguments, the version of accelerate.
    """

    values: dict[str, Any]
    places: dict[str, Place] = field(default_factory=dict)
    path: Path | None = None
    text: str = ""
    spans: dict[str, tuple[Span, Span | None]] = field(default_factory=dict)
    context: Context = field(default_factory=Context)

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
        raise ConfigError(
            "CONFIG", str(path), phrase("give the path of a config file ({strerror})", strerror=error.strerror)
        ) from error
    config = parse(text)
    config.path = file
    return config


def parse(text: str) -> Config:
    """A config from its text.

    Raises:
        ConfigError: it is not YAML, or no mapping; says where.
    """
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        config = Config({}, text=text)
        note_places(node, "", config)
        values = loader.construct_document(node) if node is not None else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = phrase("line {line}, column {column}: ", line=mark.line + 1, column=mark.column + 1) if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError("CONFIG", "not valid YAML", f"{where}{problem}") from error
    if not isinstance(values, dict):
        raise ConfigError(
            "CONFIG", type(values).__name__, phrase("give a mapping of keys to values; the file is empty or a list")
        )
    config.values = {str(key): value for key, value in values.items()}
    return config


def note_places(node: Any, prefix: str, config: Config) -> None:
    """Note where each key of a mapping stands, and its value if that is on one line."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        config.places[name] = (key.start_mark.line + 1, key.start_mark.column + 1)
        plain = isinstance(value, yaml.ScalarNode) and value.start_mark.line == value.end_mark.line
        where = (value.start_mark.index, value.end_mark.index) if plain else None
        config.spans[name] = ((key.start_mark.index, key.end_mark.index), where)
        note_places(value, f"{name}.", config)


def dump(config: Config) -> str:
    """The config as YAML, keys in their order, that reads back as the same values."""
    return yaml.safe_dump(config.values, sort_keys=False, default_flow_style=False)


def write(config: Config, path: str | Path) -> None:
    """Write the config to a file; folders on the way are made."""
    put(dump(config), Path(path).expanduser())


def put(text: str, file: Path) -> None:
    """Write a file so that it is the old one or the new one, never half of either."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    aside.write_text(text, encoding="utf-8")
    aside.replace(file)
