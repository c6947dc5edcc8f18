"""A model's `config.json`, found by path or name and read without torch or transformers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .errors import ConfigError, why
from .families import FAMILIES
from .phrases import phrase
from .shapes import ModelShape


def read_model(model: str | Path) -> ModelShape:
    """The shape of a model from its config.

    Args:
        model: A `config.json`, a folder that holds one, or the name of a model in the hub's cache on this machine.

    Raises:
        ConfigError: there is no such config, it is not readable, or its architecture is not known here.
    """
    return shape_of(read_values(model))


def read_values(model: str | Path) -> dict[str, Any]:
    """What stands in a model's config; see `read_model`.

    Raises:
        ConfigError: there is no such config, or it is not readable.
    """
    file = find_config(str(model))
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError("--model", str(file), phrase("it cannot be read ({reason})", reason=why(error))) from None
    except (ValueError, RecursionError) as error:
        fix = phrase("give a transformers config.json; this one is not JSON: {problem}", problem=error)
        raise ConfigError("--model", str(file), fix) from None
    if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
        raise ConfigError(
            "--model", str(file), phrase("give a transformers config.json; this file has no `model_type`")
        )
    return values


def find_config(model: str) -> Path:
    """The file of a model's config.

    Raises:
        ConfigError: nothing is there.
    """
    given = Path(model).expanduser()
    try:
        file, folder = given.is_file(), given.is_dir()
    except OSError as error:
        raise ConfigError("--model", model, phrase("it cannot be read ({reason})", reason=why(error))) from None
    if file:
        return given
    if folder:
        if (given / "config.json").is_file():
            return given / "config.json"
        raise ConfigError("--model", model, phrase("the folder has no config.json; give the folder of a saved model"))
    snapshots = hub_cache() / f"models--{model.replace('/', '--')}" / "snapshots"
    found = sorted(snapshots.glob("*/config.json"), key=lambda path: path.stat().st_mtime) if model else []
    if found:
        return found[-1]
    fix = phrase(
        "no such file or folder, and no such model in {cache}; give the path of its config.json, or fetch that file "
        "once with: hf download NAME config.json",
        cache=hub_cache(),
    )
    raise ConfigError("--model", model, fix)


def hub_cache() -> Path:
    """Where huggingface_hub keeps what it fetched."""
    if "HF_HUB_CACHE" in os.environ:
        return Path(os.environ["HF_HUB_CACHE"]).expanduser()
    return Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser() / "hub"


def shape_of(values: dict[str, Any]) -> ModelShape:
    """The shape from a config's values.

    Raises:
        ConfigError: the architecture is not known here, or a value that it needs is missing or no number.
    """
    kind = str(values.get("model_type"))
    if kind not in FAMILIES:
        several = "text_config" in values or "encoder" in values
        fix = phrase(
            "no formula for this architecture{several}; --simulate measures any model that transformers can build, "
            "with torch. Formulas are there for {known}",
            several=phrase(" (it is made of several models)") if several else "",
            known=", ".join(sorted(FAMILIES)),
        )
        raise ConfigError("model_type", kind, fix)
    return FAMILIES[kind](values)
