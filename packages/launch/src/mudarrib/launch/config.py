"""An Accelerate config as it stands in its file: every key, and where it is written."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .context import Context
from .errors import ConfigError, why
from .phrases import phrase

Place = tuple[int, int]
Span = tuple[int, int]
# Bytes of a file, and nodes of what it says.
LARGEST = 1 << 20


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
        repeated: Dotted keys that are there more than once, and where first.
    """

    values: dict[str, Any]
    places: dict[str, Place] = field(default_factory=dict)
    path: Path | None = None
    text: str = ""
    spans: dict[str, tuple[Span, Span | None]] = field(default_factory=dict)
    context: Context = field(default_factory=Context)
    repeated: dict[str, Place] = field(default_factory=dict)

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
        except (TypeError, ValueError, OverflowError):
            return None


def read(path: str | Path) -> Config:
    """Read a config, YAML or JSON, with the place of each key.

    Raises:
        ConfigError: no such file, no text, not YAML, not JSON in a file that is called so, or no mapping; says where.
    """
    file = Path(path).expanduser()
    text = text_of(file)
    try:
        if file.suffix == ".json":
            json_values(text)
        # YAML knows no tabs between values, JSON does.
        config = parse(text.replace("\t", " ") if file.suffix == ".json" else text)
    except ConfigError as error:
        raise ConfigError("CONFIG", str(path), error.fix) from None
    config.path, config.text = file, text
    return config


def text_of(file: Path) -> str:
    """What a config's file holds, its line ends as they are.

    Raises:
        ConfigError: it cannot be read, is larger than any config, or is no text.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(
            "CONFIG", str(file), phrase("give the path of a config file ({reason})", reason=why(error))
        ) from None
    if len(data) > LARGEST:
        raise ConfigError("CONFIG", str(file), phrase("give a config file; this one is larger than any config"))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError("CONFIG", str(file), phrase("give a config file; this one is no text in UTF-8")) from None


def json_values(text: str) -> Any:
    """What a JSON text says.

    Raises:
        ConfigError: it is not JSON; says where.
    """
    import json

    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = phrase("line {line}, column {column}: ", line=error.lineno, column=error.colno)
        problem = f"{where}{error.msg}"
    except RecursionError:
        problem = phrase("it is nested too deep, or holds itself")
    raise ConfigError("CONFIG", text[:40], phrase("it is not JSON: {error}", error=problem))


def parse(text: str) -> Config:
    """A config from its text.

    Raises:
        ConfigError: it is not YAML, or no mapping; says where.
    """
    config = Config({}, text=text)
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if expanded(node, {}) > LARGEST:
            raise RecursionError
        note_places(node, "", config)
        values = loader.construct_document(node) if node is not None else None
    except RecursionError:
        raise ConfigError("CONFIG", text[:40], phrase("it is nested too deep, or holds itself")) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = phrase("line {line}, column {column}: ", line=mark.line + 1, column=mark.column + 1) if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        said = phrase("it is not YAML: {problem}", problem=f"{where}{problem}")
        raise ConfigError("CONFIG", text[:40], said) from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        # What PyYAML lets through of a tag or a date that its value does not fit.
        said = phrase("it is not YAML: {problem}", problem=error)
        raise ConfigError("CONFIG", text[:40], said) from None
    if not isinstance(values, dict):
        raise ConfigError(
            "CONFIG", type(values).__name__, phrase("give a mapping of keys to values; the file is empty or a list")
        )
    config.values = {str(key): value for key, value in values.items()}
    return config


def expanded(node: Any, known: dict[int, int]) -> int:
    """How many nodes a node is with every alias written out.

    Raises:
        RecursionError: one holds itself.
    """
    if id(node) in known:
        if known[id(node)] < 0:
            raise RecursionError
        return known[id(node)]
    known[id(node)] = -1
    inner: list[Any] = []
    if isinstance(node, yaml.MappingNode):
        inner = [item for pair in node.value for item in pair]
    elif isinstance(node, yaml.SequenceNode):
        inner = node.value
    known[id(node)] = 1 + sum(expanded(item, known) for item in inner)
    return known[id(node)]


def note_places(node: Any, prefix: str, config: Config) -> None:
    """Note where each key of a mapping and of its sections stands, and its value if that is on one line."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        name = f"{prefix}{key.value}"
        if name in config.places:
            config.repeated.setdefault(name, config.places[name])
        config.places[name] = (key.start_mark.line + 1, key.start_mark.column + 1)
        plain = isinstance(value, yaml.ScalarNode) and value.start_mark.line == value.end_mark.line
        where = (value.start_mark.index, value.end_mark.index) if plain else None
        config.spans[name] = ((key.start_mark.index, key.end_mark.index), where)
        if not prefix:
            note_places(value, f"{name}.", config)


def dump(config: Config) -> str:
    """The config as YAML, keys in their order, that reads back as the same values."""
    return yaml.safe_dump(config.values, sort_keys=False, default_flow_style=False)


def write(config: Config, path: str | Path) -> None:
    """Write the config to a file, as JSON if it is called so; folders on the way are made.

    Raises:
        ConfigError: the file cannot be written.
    """
    file = Path(path).expanduser()
    put(as_json(config) if file.suffix == ".json" else dump(config), file)


def as_json(config: Config) -> str:
    """The config as JSON, keys in their order."""
    import json

    return json.dumps(config.values, indent=2, ensure_ascii=False, default=str) + "\n"


def target(output: str | Path, replace: bool) -> Path:
    """The file to write.

    Raises:
        ConfigError: one is there that is not to be replaced.
    """
    path = Path(output).expanduser()
    try:
        there = path.exists()
    except OSError:
        there = False
    if there and not replace:
        raise ConfigError("--output", str(path), phrase("the file is there: give --yes to replace it, or another name"))
    return path


def put(text: str, file: Path) -> None:
    """Write a file so that it is the old one or the new one, never half of either, with the old one's permissions.

    Raises:
        ConfigError: it cannot be written.
    """
    aside = None
    try:
        file = file.resolve()
        aside = file.with_name(f".{file.name}.{os.getpid()}")
        file.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8", newline="")
        if file.exists():
            aside.chmod(file.stat().st_mode)
        aside.replace(file)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            if aside is not None:
                aside.unlink(missing_ok=True)
        raise ConfigError("--output", str(file), phrase("it cannot be written ({reason})", reason=why(error))) from None
