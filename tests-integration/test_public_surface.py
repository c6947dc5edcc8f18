"""The public surface is a file in git: changing it means changing that file."""

import difflib
import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SPEC = importlib.util.spec_from_file_location("surface", ROOT / "tools" / "surface.py")
surface = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(surface)


@pytest.fixture(scope="module")
def now():
    return surface.whole()


@pytest.mark.parametrize("name", [*surface.MODULES, "layout"])
def test_the_surface_is_the_one_in_git(now, name):
    expected = (surface.FOLDER / f"{name}.json").read_text()
    found = surface.as_text(now[name])
    difference = "\n".join(
        difflib.unified_diff(expected.splitlines(), found.splitlines(), "in git", "now", lineterm="", n=1)
    )
    assert not difference, f"run tools/api --update if this is meant:\n{difference}"


def test_the_snapshot_holds_what_matters():
    core = json.loads((surface.FOLDER / "core_loop.json").read_text())["names"]
    assert len(core["TrainingArguments"]["fields"]) == 117
    assert {"train", "evaluate", "predict", "compute_loss", "get_checkpoint_files"} <= set(core["Trainer"]["members"])
    optim = json.loads((surface.FOLDER / "optim_extras.json").read_text())["entry points"]
    assert "galore_adamw" in optim["mudarrib.optimizers"]
    files = json.loads((surface.FOLDER / "layout.json").read_text())["files"]
    assert "checkpoint-2/manifest.json" in files and "checkpoint-2/model.safetensors" in files
