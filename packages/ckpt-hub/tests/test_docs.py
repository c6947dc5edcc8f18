"""Every Python block of the pages that need torch alone runs; a page's blocks follow on one another."""

import re
from pathlib import Path

import pytest
from hub_server import TOKEN, Hub

PACKAGE = Path(__file__).parents[1]


def run_page(name):
    blocks = re.findall(r"```python\n(.*?)```", (PACKAGE / name).read_text(), re.DOTALL)
    assert blocks
    names = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, name, "exec"), names)
    return names


@pytest.mark.parametrize("name", ["README.md", "docs/bare-loop.md", "docs/background.md", "docs/for-trainers.md"])
def test_page(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(name)
    assert list(tmp_path.glob("*/checkpoint-*/manifest.json"))


@pytest.mark.usefixtures("online")
def test_page_of_the_hub(tmp_path, monkeypatch):
    import huggingface_hub.constants as constants

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with Hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
        assert run_page("docs/hub.md")["arrived"]
        assert "last-checkpoint/manifest.json" in hub.files("me/my-model") and "README.md" in hub.files("me/my-model")


def test_every_page_is_linked():
    readme = (PACKAGE / "README.md").read_text()
    assert set(re.findall(r"\((docs/[\w-]+\.md)\)", readme)) == {
        f"docs/{p.name}" for p in (PACKAGE / "docs").glob("*.md")
    }
