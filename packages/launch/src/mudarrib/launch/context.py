"""What a config can be compared with: the model that is to be trained, the training arguments, the versions."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import ConfigError, why
from .phrases import phrase

if TYPE_CHECKING:
    import ast

NEWEST = "1.15.0"
# How accelerators show themselves on Linux: NVIDIA's, AMD's, Intel's, Ascend's, Habana's and Google's, Trainium, WSL.
DEVICES = (
    "nvidia[0-9]*",
    "kfd",
    "dri/renderD*",
    "davinci[0-9]*",
    "accel*",
    "vfio/[0-9]*",
    "neuron*",
    "dxg",
    "cambricon*",
)


@dataclass(frozen=True)
class ModelFacts:
    """A model as far as wrapping it is concerned.

    Attributes:
        kind: Its `model_type`.
        classes: The classes of modules that its source has; empty if that is not known.
        layers: Those that the model itself says must stay whole, as wrapping by layer takes them.
    """

    kind: str
    classes: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Here:
    """The machine that launches.

    Attributes:
        accelerators: Whether it has any; None where that cannot be seen.
        packages: Which of those that a config can ask for are installed.
        flags: What is handed to `accelerate launch` besides the config.
    """

    accelerators: bool | None = None
    packages: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Context:
    """What is known besides the config.

    Attributes:
        model: Facts of the model, if one was named.
        training: The training arguments by name; empty if none were given.
        accelerate: Version of accelerate that will launch.
        here: This machine, if it is the one that launches.
    """

    model: ModelFacts | None = None
    training: dict[str, Any] = field(default_factory=dict)
    accelerate: str = NEWEST
    here: Here | None = None


def installed_accelerate() -> str:
    """The version of accelerate that is here; the newest known where there is none.

    By the names of folders: importlib.metadata takes longer to import than a check takes.
    """
    for folder in sys.path:
        try:
            names = [item.name for item in Path(folder).iterdir()]
        except OSError:
            continue
        for name in names:
            found = re.fullmatch(r"accelerate-([0-9][^-]*)\.(dist|egg)-info", name)
            if found:
                return found[1]
    return NEWEST


def this_machine(flags: Sequence[str]) -> Here:
    """What can be seen of this machine without torch.

    Args:
        flags: What is handed to `accelerate launch` besides the config.
    """
    from importlib.util import find_spec

    packages = tuple(name for name in ("deepspeed",) if find_spec(name) is not None)
    seen = any(any(Path("/dev").glob(pattern)) for pattern in DEVICES)
    return Here(seen if sys.platform == "linux" else None, packages, tuple(flags))


def read_training(path: str | Path) -> dict[str, Any]:
    """Training arguments from a JSON file, as `TrainingArguments.to_json` writes it, the peers' too.

    Raises:
        ConfigError: there is no such file, or it holds no JSON object.
    """
    import json

    file = Path(path).expanduser()
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        fix = phrase("give the path of a JSON file ({reason})", reason=why(error))
        raise ConfigError("--args", str(path), fix) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError("--args", str(path), phrase("it is not JSON: {error}", error=error)) from None
    if not isinstance(values, dict):
        raise ConfigError("--args", str(path), phrase("give a JSON object of arguments by name"))
    return values


def read_model_facts(model: str | Path) -> ModelFacts:
    """Facts of a model, from its config and from transformers' source, of which nothing is imported or run.

    Args:
        model: A `config.json`, a folder that holds one, or the name of a model in the hub's cache.

    Raises:
        ConfigError: there is no such config, or it is not readable.
    """
    from .model_config import read_values

    values = read_values(model)
    kind = str(values["model_type"])
    own_code = bool(values.get("auto_map"))
    return ModelFacts(kind) if own_code else facts_of_source(kind)


def facts_of_source(kind: str) -> ModelFacts:
    """The classes in transformers' source of an architecture."""
    import ast
    from importlib.util import find_spec

    found = find_spec("transformers")
    if found is None or not found.submodule_search_locations:
        return ModelFacts(kind)
    name = kind.replace("-", "_")
    source = Path(found.submodule_search_locations[0]) / "models" / name / f"modeling_{name}.py"
    if not source.is_file():
        return ModelFacts(kind)
    classes, layers = [], []
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            classes.append(node.name)
            layers += whole_layers(node)
    return ModelFacts(kind, tuple(classes), tuple(dict.fromkeys(layers)))


def whole_layers(node: ast.ClassDef) -> list[str]:
    """What `_no_split_modules` of a class names."""
    import ast

    for line in node.body:
        if isinstance(line, ast.Assign) and getattr(line.targets[0], "id", "") == "_no_split_modules":
            items = getattr(line.value, "elts", [])
            return [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return []
