"""Every Python block of the pages runs."""

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]
PAGES = ["README.md", "docs/optimizers.md", "docs/memory.md", "docs/neftune.md"]


@pytest.mark.parametrize("name", PAGES)
def test_page(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (PACKAGE / name).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), {"__name__": "page"})


def test_the_first_example_learns(monkeypatch):
    import torch

    torch.manual_seed(0)
    (block,) = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    names = {"__name__": "page"}
    exec(compile(block, "README.md", "exec"), names)
    x = torch.randn(256, 16)
    error = (names["model"](x) - x.sum(1, keepdim=True)).square().mean()
    assert float(error.detach()) < 0.8 * 16


def test_every_page_is_linked():
    text = (PACKAGE / "README.md").read_text()
    assert all(f"docs/{page.name}" in text for page in (PACKAGE / "docs").glob("*.md"))
    links = re.findall(r"\]\(((?:docs|src)/[^)]+)\)", text)
    assert all((PACKAGE / link).is_file() for link in links)


def test_every_builder_is_on_the_page_of_optimizers():
    import tomllib

    text = (PACKAGE / "docs" / "optimizers.md").read_text()
    entries = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["entry-points"]["mudarrib.optimizers"]
    assert all(f"`{name.removesuffix('_layerwise')}`" in text for name in entries)
