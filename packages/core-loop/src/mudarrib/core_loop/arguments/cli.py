"""Arguments from a command line or a JSON file, by argparse alone, so that `--help` answers at once."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import types
from collections.abc import Sequence
from typing import Any, Union, get_args, get_origin, get_type_hints

from . import legacy

TRUE, FALSE = ("true", "1", "yes", "y", "on"), ("false", "0", "no", "n", "off")


def parse_args(*classes: type, args: Sequence[str] | None = None, description: str | None = None) -> Any:
    """An instance of each dataclass from command-line flags named like its fields.

    `script.py settings.json` takes them from a JSON file instead. Old spellings work as flags too.

    Args:
        *classes: Dataclasses, such as `TrainingArguments` and one of your own.
        args: The command line; by default that of the process.
        description: Shown by `--help`.

    Returns:
        One instance, or a tuple of them where there are several classes.
    """
    given = list(sys.argv[1:] if args is None else args)
    if len(given) == 1 and given[0].endswith(".json"):
        values = legacy.read_json("settings", given[0])
    else:
        values = vars(make_parser(classes, description).parse_args(given))
    instances = []
    for cls in classes:
        names = {field.name for field in dataclasses.fields(cls) if field.init}
        old = set(legacy.OLD_NAMES) if "output_dir" in names else set()
        instances.append(cls(**{name: values[name] for name in values if name in names | old}))
    return instances[0] if len(instances) == 1 else tuple(instances)


def make_parser(classes: Sequence[type], description: str | None = None) -> argparse.ArgumentParser:
    """The parser behind `parse_args`; flags that are not given are left out of its result."""
    parser = argparse.ArgumentParser(
        description=description, argument_default=argparse.SUPPRESS, allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )  # fmt: skip
    known: set[str] = set()
    for cls in classes:
        group = parser.add_argument_group(cls.__name__)
        kinds = get_type_hints(cls)
        for field in dataclasses.fields(cls):
            if field.init:
                add_flag(group, field, kinds[field.name])
                known.add(field.name)
    if "output_dir" in known:
        for name in legacy.OLD_NAMES:
            if name not in known:
                parser.add_argument(f"--{name}", nargs="?", const=True, type=loose, help=argparse.SUPPRESS)
    return parser


def add_flag(group: Any, field: dataclasses.Field[Any], kind: Any) -> None:
    """A flag for one field: `--name value`, for booleans also `--name` alone and `--no_name`."""
    required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    default = None if required else field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    text = str(field.metadata.get("help", "")).replace("%", "%%")
    if not required:
        text = f"{text} (default: {default!r})"
    options: dict[str, Any] = {"help": text, "required": required, "metavar": "VALUE"}
    inner = [part for part in members(kind) if part is not type(None)]
    if bool in inner and list not in map(origin, inner):
        options |= {"nargs": "?", "const": True, "type": boolean if inner == [bool] else loose}
    elif any(origin(part) is list for part in inner):
        options |= {"nargs": "+", "type": item_type(inner)}
    else:
        options["type"] = next((part for part in (float, int) if part in inner), str)
        if options["type"] is float and int not in inner:
            options["type"] = number
    flags = [f"--{field.name}"] + ([f"--{field.name.replace('_', '-')}"] if "_" in field.name else [])
    group.add_argument(*flags, dest=field.name, **options)
    if inner == [bool]:
        group.add_argument(f"--no_{field.name}", dest=field.name, action="store_false", help=argparse.SUPPRESS)


def members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def origin(kind: Any) -> Any:
    return get_origin(kind) or kind


def item_type(inner: list[Any]) -> Any:
    items = [get_args(part)[0] for part in inner if get_origin(part) is list and get_args(part)]
    return items[0] if items and items[0] in (int, float, str) else str


def boolean(text: str | bool) -> bool:
    """true/false, yes/no, 1/0 as a boolean."""
    lowered = str(text).lower()
    if lowered not in (*TRUE, *FALSE):
        raise argparse.ArgumentTypeError(f"give true or false, not {text!r}")
    return lowered in TRUE


def number(text: str) -> float:
    """A number; whole ones as int."""
    value = float(text)
    return int(value) if value.is_integer() and "." not in text and "e" not in text.lower() else value


def loose(text: str | bool) -> Any:
    """A boolean or number where the text is one, else the text."""
    lowered = str(text).lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    try:
        return number(str(text))
    except ValueError:
        return text
