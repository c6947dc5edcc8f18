"""The report, opened in a real browser: nothing fails, nothing is fetched, and it can be read on a phone."""

import json
import math
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two runs with everything: our growing log with times, and a state as transformers' Trainer leaves it."""
    from mudarrib.core_loop.report import write_report

    folder = tmp_path_factory.mktemp("report")
    for name, rate in (("ours", 1.0), ("peers/checkpoint-400", 0.5)):
        history = []
        for step in range(5, 401, 5):
            loss = 3 * math.exp(-rate * step / 150) + 0.1 * math.sin(step)
            history.append({"loss": loss, "grad_norm": 1 + loss / 3, "learning_rate": 1e-4 * (1 - step / 400),
                            "tokens_per_second": 9000 + step, "epoch": step / 200, "step": step})  # fmt: skip
            if step % 100 == 0:
                history.append({"eval_loss": loss + 0.1, "eval_accuracy": 1 - loss / 4, "eval_runtime": 1.0,
                                "eval_samples_per_second": 88.0, "epoch": step / 200, "step": step})  # fmt: skip
        history[40]["loss"] = float("nan")
        (folder / name).mkdir(parents=True)
        if name == "ours":
            timed = [{**entry, "time": 1e9 + i, "memory_bytes": 2**31 + i} for i, entry in enumerate(history)]
            (folder / name / "log_history.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in timed))
        else:
            (folder / name / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    return write_report([folder / "ours", folder / "peers"], folder, "Two runs <&> سريع")[1]


@pytest.fixture(scope="module")
def chromium():
    from browser import browser
    from playwright.sync_api import sync_playwright

    program, variables = browser()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, env=variables, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(chromium, report):
    """A function that opens the report; at the end nothing may have failed or been fetched."""
    said, fetched, contexts = [], [], []

    def open_page(width=1280, **settings):
        context = chromium.new_context(viewport={"width": width, "height": 844}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(report.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert {url for url in fetched if not url.startswith("data:")} == {report.as_uri()}


CHARTS = ["loss", "learning rate", "accuracy", "gradient norm", "tokens per second", "samples per second",
          "steps per second", "memory"]  # fmt: skip


def test_all_charts_are_drawn(opened, tmp_path):
    page = opened()
    assert page.title() == "Two runs <&> سريع" == page.locator("h1").inner_text()
    assert page.locator(".card h2").all_text_contents() == CHARTS
    for card in page.locator(".card").all():
        paths = card.locator("path.line").evaluate_all("all => all.map((path) => path.getTotalLength())")
        assert paths and min(paths) > 50, card.inner_text()
    assert page.locator("text.broken").count() == 2, "a loss that is not finite is marked"
    picture = page.screenshot(path=tmp_path / "report.png", full_page=True)
    assert picture.startswith(b"\x89PNG") and len(picture) > 50_000


@pytest.mark.parametrize("width", [320, 390, 768, 1920])
def test_nothing_overflows(opened, width):
    page = opened(width, device_scale_factor=2, has_touch=True)
    wide, seen = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide <= seen == width
    outside = """all => all.filter((e) => { const b = e.getBoundingClientRect(), c = e.closest(".card").getBoundingClientRect();
                 return b.left < c.left || b.right > c.right; }).map((e) => e.textContent)"""
    assert page.locator(".card text, .card li").evaluate_all(outside) == []
    sizes = page.locator(".card text").evaluate_all("all => all.map((e) => e.getBoundingClientRect().height)")
    assert min(sizes) >= 10, "letters stay readable"


def test_the_pointer_shows_the_same_step_everywhere(opened):
    page = opened()
    page.locator(".card > svg").first.hover(position={"x": 300, "y": 100})
    assert page.locator("line.cross").count() == len(CHARTS)
    shown = page.locator(".card").first.locator("b").all_text_contents()
    assert shown and all(" @ " in text for text in shown)


def test_runs_axes_and_scales(opened):
    page = opened()
    loss = page.locator(".card").first
    assert loss.locator("li").count() == 4
    page.get_by_role("button", name="peers").click()
    assert loss.locator("li").count() == 2
    straight = loss.locator("path.line").first.get_attribute("d")
    page.get_by_label("logarithmic").check()
    assert loss.locator("path.line").first.get_attribute("d") != straight
    page.get_by_label("x").select_option("time")
    assert "m" in "".join(loss.locator("svg[role=img] text").all_text_contents())
    page.get_by_label("smoothing").fill("0.9")
    assert loss.locator("path.raw").count() == 1


def luminance(colour):
    red, green, blue = (int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255


@pytest.mark.parametrize(
    ("scheme", "media", "is_dark"), [("light", "screen", False), ("dark", "screen", True), ("dark", "print", False)]
)
def test_light_dark_and_paper(opened, scheme, media, is_dark):
    page = opened(color_scheme=scheme)
    page.emulate_media(media=media, color_scheme=scheme)
    ink, ground = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert abs(luminance(ink) - luminance(ground)) > 0.7
    assert (luminance(ground) < 0.5) is is_dark
    assert page.locator("#controls").is_visible() is (media == "screen")
