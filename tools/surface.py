"""The public surface of the five packages as plain data: names, signatures, fields, flags, entry points, files.

Run by `tools/api` in the environment; compared with `tests-integration/surface/*.json` by a test.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import json
import re
import tempfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "tests-integration" / "surface"
MODULES = ("ckpt_hub", "core_loop", "optim_extras", "sft", "launch")


def text_of(value: Any) -> str:
    """A default or annotation without what differs from run to run."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value) if not isinstance(value, str) else value)


def signature_of(item: Any) -> str:
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(item)))
    except (TypeError, ValueError):
        return "(...)"


def members_of(cls: type) -> dict[str, str]:
    """Public methods and properties that the class defines, or takes from another class of ours."""
    found = {}
    for name, member in inspect.getmembers(cls):
        owner = next((base for base in cls.__mro__ if name in vars(base)), None)
        if name.startswith("_") or owner is None or not owner.__module__.startswith("mudarrib."):
            continue
        if isinstance(inspect.getattr_static(cls, name), property):
            found[name] = "property"
        elif callable(member):
            found[name] = signature_of(member)
    return found


def describe(item: Any) -> Any:
    if inspect.isclass(item):
        known: dict[str, Any] = {"signature": signature_of(item), "members": members_of(item)}
        if dataclasses.is_dataclass(item):
            fields = dataclasses.fields(item)
            known["fields"] = {
                field.name: f"{written_type(item, field.name)} = {default_of(field)}" for field in fields
            }
            known["signature"] = "of its fields"
        return known
    return signature_of(item) if callable(item) else text_of(type(item).__name__)


def written_type(cls: type, name: str) -> str:
    """A field's type as it is written; parsers put resolved types into the fields themselves."""
    found = next(
        vars(base)["__annotations__"][name] for base in cls.__mro__ if name in vars(base).get("__annotations__", {})
    )
    return found if isinstance(found, str) else getattr(found, "__name__", text_of(found))


def default_of(field: dataclasses.Field) -> str:
    if field.default is not dataclasses.MISSING:
        return text_of(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return text_of(field.default_factory())
    return "required"


def flags_of(parser: argparse.ArgumentParser) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            flags |= {name: flags_of(sub) for name, sub in action.choices.items()}
        elif action.help != argparse.SUPPRESS and action.dest != "help":
            flags[" ".join(action.option_strings) or action.dest] = bool(action.required)
    return flags


def of_package(module: str) -> dict[str, Any]:
    """Names, entry points and console scripts of one package."""
    package = importlib.import_module(f"mudarrib.{module}")
    mine = f"mudarrib.{module}"
    scripts = {
        entry.name: entry.value for entry in entry_points(group="console_scripts") if entry.value.startswith(mine)
    }
    groups = {
        group: sorted(entry.name for entry in entry_points(group=group) if entry.value.startswith(mine))
        for group in ("mudarrib.optimizers", "mudarrib.embedding_noise")
    }
    surface: dict[str, Any] = {
        "names": {name: describe(getattr(package, name)) for name in sorted(package.__all__) if name != "__version__"},
        "scripts": scripts,
        "entry points": {group: names for group, names in groups.items() if names},
    }
    parser = (
        getattr(importlib.import_module(f"{mine}.cli"), "parser", None) if module in ("launch", "ckpt_hub") else None
    )
    if parser is not None:
        surface["flags"] = flags_of(parser())
    return surface


def layout() -> dict[str, Any]:
    """The files of a run's folder, as a tiny run writes them."""
    import torch

    from mudarrib.core_loop import Trainer, TrainingArguments

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 1)

        def forward(self, x, labels):
            return {"loss": (self.linear(x).squeeze(-1) - labels).square().mean()}

    rows = [{"x": torch.ones(2), "labels": torch.tensor(1.0)}] * 8
    with tempfile.TemporaryDirectory() as name:
        args = TrainingArguments(name, max_steps=2, save_steps=1, use_cpu=True, disable_tqdm=True, log_level="error")
        Trainer(Line(), args, train_dataset=rows).train()
        folder = Path(name)
        return {"files": sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())}


def whole() -> dict[str, dict[str, Any]]:
    """The surface of every package, and the layout on disk."""
    return {**{module: of_package(module) for module in MODULES}, "layout": layout()}


def as_text(surface: dict[str, Any]) -> str:
    return json.dumps(surface, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the files instead of comparing")
    update = parser.parse_args().update
    FOLDER.mkdir(exist_ok=True)
    changed = []
    for name, surface in whole().items():
        path = FOLDER / f"{name}.json"
        if not path.exists() or path.read_text() != as_text(surface):
            changed.append(name)
            if update:
                path.write_text(as_text(surface))
    print(f"{'written' if update else 'changed'}: {', '.join(changed) or 'nothing'}")
    raise SystemExit(bool(changed) and not update)


if __name__ == "__main__":
    main()
