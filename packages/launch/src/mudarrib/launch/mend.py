"""Changes to a config's file where it is wrong: all else, comments and order too, stays as it is."""

from __future__ import annotations

from typing import Any

import yaml

from .config import Config, Span, as_json


def mended(
    config: Config,
    values: dict[str, Any],
    names: dict[str, str],
    removed: frozenset[str] = frozenset(),
    added: dict[str, Any] | None = None,
) -> str:
    """The file's text with keys renamed, removed and added, and values changed.

    Args:
        config: Read from a file.
        values: Dotted key to its new value.
        names: Dotted key to its new name.
        removed: Dotted keys that go, each with its line.
        added: Dotted key to value, of keys that are not there.
    """
    changes: list[tuple[Span, str]] = []
    for key in removed:
        span = line_of(config, key)
        if span is not None:
            changes.append((span, ""))
    for key, name in names.items():
        if key in config.spans and key not in removed:
            changes.append((config.spans[key][0], name))
    for key, value in values.items():
        span = config.spans.get(key, ((0, 0), None))[1]
        if span is not None and key not in removed:
            changes.append((span, f" {written(value)}" if span[0] == span[1] else written(value)))
    for key, value in (added or {}).items():
        change = insertion(config, key, value)
        if change is not None:
            changes.append(change)
    text = config.text
    for (start, end), new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def mended_json(
    config: Config, values: dict[str, Any], names: dict[str, str], removed: frozenset[str], added: dict[str, Any]
) -> str:
    """The same for a file of JSON, which has no comments to keep: laid out anew, keys in their order."""

    def fresh(old: dict[str, Any], prefix: str) -> dict[str, Any]:
        new = {
            key.removeprefix(prefix): value
            for key, value in added.items()
            if key.rpartition(".")[0] == prefix.rstrip(".") and key.removeprefix(prefix) not in old
        }
        for key, value in old.items():
            name = f"{prefix}{key}"
            if name not in removed:
                inner = fresh(value, f"{name}.") if isinstance(value, dict) and not prefix else value
                new[names.get(name, key)] = values.get(name, inner)
        return new

    new = fresh(config.values, "")
    return config.text if new == config.values else as_json(Config(new))


def written(value: Any) -> str:
    """A plain value as YAML writes it."""
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()


def start_of_line(text: str, at: int) -> int:
    """Where the line of a place begins; the first one begins behind a byte-order mark."""
    start = text.rfind("\n", 0, at) + 1
    return 1 if start == 0 and text.startswith("\ufeff") else start


def line_of(config: Config, key: str) -> Span | None:
    """The whole line of a key with a plain value; None where other things stand on it."""
    name, value = config.spans.get(key, ((0, 0), None))
    if value is None:
        return None
    start = start_of_line(config.text, name[0])
    end = config.text.find("\n", value[1])
    end = len(config.text) if end < 0 else end + 1
    rest = config.text[value[1] : end].strip()
    alone = not config.text[start : name[0]].strip() and (not rest or rest.startswith("#"))
    return (start, end) if alone else None


def insertion(config: Config, key: str, value: Any) -> tuple[Span, str] | None:
    """Where a new key goes: before the first of its section, indented as that one."""
    section, _, name = key.rpartition(".")
    beside = [other for other in config.spans if other.rpartition(".")[0] == section]
    if key in config.spans or not beside:
        return None
    first = min(config.spans[other][0][0] for other in beside)
    start = start_of_line(config.text, first)
    indent = config.text[start:first]
    if indent.strip():
        # A section in braces, on one line.
        return (first, first), f"{name}: {written(value)}, "
    end = "\r\n" if "\r\n" in config.text else "\n"
    return (start, start), f"{indent}{name}: {written(value)}{end}"
