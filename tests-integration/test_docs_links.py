"""Links of the pages lead somewhere, the table of features to sections that show them, and figures are measured ones."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"), *ROOT.glob(".github/*.md"), *ROOT.glob("tools/site/pages/*.md"),
        *ROOT.glob("packages/*/README.md"), *ROOT.glob("packages/*/docs/*.md"), *ROOT.glob("packages/*/src/**/README.md"),
    ]
)  # fmt: skip
FEATURES = ROOT / "tools" / "site" / "pages" / "features.md"
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])+\]\(([^)\s]+)\)")


def without_blocks(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def slug(title):
    """The anchor of a heading, as GitHub and the site both make it."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.replace("`", "")).strip().lower())


def sections(page):
    """Anchor of each heading of a page: the text below it, up to the next of its level or above."""
    text, found, in_block = page.read_text(encoding="utf-8").splitlines(), {}, False
    heads = []
    for number, line in enumerate(text):
        in_block ^= line.startswith("```")
        if not in_block and (match := re.match(r"(#+) (.*)", line)):
            heads.append((number, len(match[1]), match[2]))
    for number, level, title in heads:
        end = next((n for n, other, _ in heads if n > number and other <= level), len(text))
        found[slug(title)] = "\n".join(text[number:end])
    return found


def links_of(page):
    for link in LINK.findall(without_blocks(page.read_text(encoding="utf-8"))):
        if not link.startswith(("http", "mailto:")):
            path, _, anchor = link.partition("#")
            yield link, (page.parent / path).resolve() if path else page, anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_what_is_there(page):
    for link, target, anchor in links_of(page):
        assert target.exists(), link
        assert not anchor or anchor in sections(target), link


ROWS = re.findall(r"^\| (.+?) \| \[.+?\]\((\S+?)#(\S+?)\) \|$", FEATURES.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("wanted", "path", "anchor"), ROWS, ids=[row[0][:40] for row in ROWS])
def test_the_section_of_a_feature_shows_it(wanted, path, anchor):
    shown = sections((FEATURES.parent / path).resolve())[anchor]
    missing = [call for call in re.findall(r"`(.+?)`", wanted) if call not in shown]
    assert not missing


def test_every_row_of_the_features_was_read():
    rows = [line for line in FEATURES.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(ROWS) == len([row for row in rows if not row.startswith("| you want")])


FIGURES = [
    (name, line)
    for name in ("README.md", "README.ar.md")
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and re.search(r"\]\(\S+/docs/(measured|packing)\.md\)", line)
]


@pytest.mark.parametrize(("name", "line"), FIGURES, ids=[f"{name}: {line[2:40]}" for name, line in FIGURES])
def test_a_figure_of_the_readme_stands_on_the_page_that_it_names(name, line):
    cells = [cell.strip() for cell in re.sub(r"</?span[^>]*>", "", line).strip("|").split("|")]
    page = (ROOT / re.search(r"\]\((\S+?)\)", cells[-1])[1]).read_text(encoding="utf-8")
    figures = [
        figure for cell in cells[1:-1] for figure in re.findall(r"(?<![\w.])\d[\d,.]*\d|(?<![\w.])\d(?![\w.])", cell)
    ]
    versions = {"5.24", "1.16", "1"}  # of the peers; and what the others are measured by
    assert figures
    assert [figure for figure in figures if figure not in versions and figure not in page] == []
