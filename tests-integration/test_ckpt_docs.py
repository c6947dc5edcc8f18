"""The pages of ckpt-hub that show it inside other trainers run as they stand."""

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[1] / "packages" / "ckpt-hub" / "docs"


@pytest.mark.parametrize("name", ["transformers.md", "lightning.md"])
@pytest.mark.filterwarnings("ignore")  # of the other trainers
def test_page(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", (PAGES / name).read_text(), re.DOTALL):
        exec(compile(block, name, "exec"), names)
    assert names["resumed"] is not names["whole"]
