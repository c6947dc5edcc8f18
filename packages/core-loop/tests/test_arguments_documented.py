"""No argument is silently ignored, and none is undocumented."""

import dataclasses
import re
from pathlib import Path

import pytest

from mudarrib.core_loop import TrainingArguments
from mudarrib.core_loop.arguments import legacy

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "mudarrib" / "core_loop"
PAGE = (ROOT / "docs" / "arguments.md").read_text()
# Not read by the Trainer, and the page says why.
READ_ELSEWHERE = {
    "do_train": "For scripts",
    "do_predict": "For scripts",
    "gradient_checkpointing_kwargs": "Works",
    "hub_always_push": "No effect",
    "project": "trackio integration",
    "trackio_space_id": "trackio integration",
    "trackio_bucket_id": "trackio integration",
    "trackio_static_space_id": "trackio integration",
}
FIELDS = [field.name for field in dataclasses.fields(TrainingArguments)]
CHECKS = {"setters.py", "validate.py", "legacy.py"}
READERS = "\n".join(path.read_text() for path in SOURCE.rglob("*.py") if "arguments" not in path.parts)
DERIVED = "\n".join(path.read_text() for path in (SOURCE / "arguments").glob("*.py") if path.name not in CHECKS)


@pytest.mark.parametrize("name", FIELDS)
def test_every_argument_has_a_reader_or_a_reason(name):
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
    if name in READ_ELSEWHERE:
        assert READ_ELSEWHERE[name] in row
        return
    read = re.search(rf"\bargs\.{name}\b|\"{name}\"", READERS) or re.search(rf"self\.{name}\b", DERIVED)
    assert read, f"{name} is read by nobody"


def test_the_page_has_every_default_and_old_spelling():
    for field in dataclasses.fields(TrainingArguments):
        default = field.default if field.default is not dataclasses.MISSING else field.default_factory()
        assert f"| `{field.name}` | `{default!r}` |" in PAGE
    for name in legacy.OLD_NAMES:
        assert f"| `{name}` |" in PAGE
