"""Every code block of every page runs as it stands, in the order of the page, in a folder of the page's own.

What a page's fences say:

- ```python           is run; the blocks of a page follow on one another
- ```LANG title="F"   is the file F, for the blocks after it
- ```shell            is run by bash; `pip install`, `git clone` and `tools/...` are checked instead
- ```text and others  are not code

Comments that readers do not see: `<!-- first ... -->` is Python that is run before the page, `<!-- last ... -->` after
it, and `<!-- in the test: A -> B -->` makes a text that would take long, or need a network, one that does not.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"), *ROOT.glob(".github/*.md"), *ROOT.glob("tools/site/pages/*.md"),
        *ROOT.glob("packages/*/README.md"), *ROOT.glob("packages/*/docs/*.md"), *ROOT.glob("packages/*/src/**/README.md"),
    ]
)  # fmt: skip
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HIDDEN = re.compile(r"<!-- (first|last)\n(.*?)-->", re.DOTALL)
INSTEAD = re.compile(r"<!-- in the test: (.*?) -> (.*?) -->")
NOT_CODE = {"text", "yaml", "json", "jsonl", "toml", "mermaid", "html"}
ELSEWHERE = re.compile(r"^\s*(pip install|git clone|cd mudarrib|tools/)")


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks_of(page):
    text = page.read_text(encoding="utf-8")
    blocks = [(info.split(" ", 1)[0], re.search(r'title="(.+?)"', info), body) for info, body in BLOCK.findall(text)]
    for long, short in INSTEAD.findall(text):
        changed = [(language, title, body.replace(long, short)) for language, title, body in blocks]
        assert changed != blocks, f"{name_of(page)} says nowhere {long!r}"
        blocks = changed
    hidden = {when: ("python", None, body) for when, body in HIDDEN.findall(text)}
    return [*([hidden["first"]] if "first" in hidden else []), *blocks, *([hidden["last"]] if "last" in hidden else [])]


def has_code(page):
    return any(language in ("python", "shell") for language, _, _ in blocks_of(page))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder in which the clone's tools and packages are seen, as from the clone."""
    for name in ("tools", "packages"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["page"])
    monkeypatch.syspath_prepend(Path(__file__).parent)  # for docs_kit
    before = dict(os.environ)
    yield tmp_path
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def hub(request, monkeypatch):
    """A hub on this machine for the one page that pushes to it."""
    if request.node.callspec.params["page"].name != "hub.md":
        yield None
        return
    import huggingface_hub.constants as constants
    import huggingface_hub.utils._http as http

    monkeypatch.syspath_prepend(ROOT / "packages/ckpt-hub/tests")
    from hub_server import TOKEN, Hub

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(http.time, "sleep", lambda _: None)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with Hub() as started:
        monkeypatch.setattr(constants, "ENDPOINT", started.endpoint)
        yield started
        assert "last-checkpoint/manifest.json" in started.files("me/my-model")


def run_shell(text, page):
    lines = text.replace("\\\n", " ").splitlines()
    for line in lines:
        if ELSEWHERE.match(line):
            check_line(line.split("#")[0].split())
    here = "\n".join(line for line in lines if not ELSEWHERE.match(line))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", here], capture_output=True, text=True, timeout=200,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, f"{name_of(page)}:\n{text}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"


def check_line(words):
    """A command that a test does not carry out: what it names must be there."""
    if words[0].startswith("tools/"):
        assert (ROOT / words[0]).is_file(), words
    if words[:2] == ["pip", "install"]:
        for requirement in words[2:]:
            name, _, extras = requirement.strip("\"'").rstrip("]").partition("[")
            if name.startswith("mudarrib-"):
                project = tomllib.loads((ROOT / "packages" / name[9:] / "pyproject.toml").read_text())["project"]
                assert set(filter(None, extras.split(","))) <= set(project.get("optional-dependencies", {})), (
                    requirement
                )


@pytest.mark.parametrize("page", [page for page in PAGES if has_code(page)], ids=name_of)
@pytest.mark.filterwarnings("ignore")  # of the libraries that pages show beside ours
@pytest.mark.usefixtures("folder", "hub")
def test_page(page):
    names = {"__name__": "page"}
    for language, title, body in blocks_of(page):
        if title is not None:
            Path(title.group(1)).parent.mkdir(parents=True, exist_ok=True)
            Path(title.group(1)).write_text(body)
        elif language == "python":
            exec(compile(body, name_of(page), "exec"), names)
        elif language == "shell":
            run_shell(body, page)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page):
    assert {language for language, _, _ in blocks_of(page)} <= {"python", "shell", *NOT_CODE}


@pytest.mark.parametrize(
    "package", sorted(path.parent for path in ROOT.glob("packages/*/README.md")), ids=lambda p: p.name
)
def test_every_page_is_linked(package):
    linked = set(re.findall(r"\((docs/[\w-]+\.md)\)", (package / "README.md").read_text()))
    assert linked == {f"docs/{page.name}" for page in (package / "docs").glob("*.md")}
