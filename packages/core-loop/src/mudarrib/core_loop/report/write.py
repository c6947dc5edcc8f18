"""Write the report of one run, or of several laid over each other."""

from __future__ import annotations

import html
import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from .curves import History, Line, Panel, Point, numbers, panels, read_history, summary
from .draw import COLOURS, as_png, figure_class

logger: logging.Logger = logging.getLogger(__name__)
HERE = Path(__file__).parent


def write_report(
    source: History | str | Path | Sequence[str | Path], folder: str | Path, title: str = "Training"
) -> tuple[Path, Path]:
    """Draw the curves of a run.

    Args:
        source: A log history, or the path of a `trainer_state.json` (also of transformers' Trainer), a checkpoint or
            a run's folder; several paths are laid over each other.
        folder: Where `report.png` and `report.html` go; made if it is not there.
        title: Shown above the charts.

    Returns:
        The paths of the picture and of the page, which needs no other file and no network.

    Raises:
        ArgumentError: a path holds no log history, nothing was logged, the folder can't be written, or matplotlib is
            missing.
    """
    runs = named_runs(source)
    charts = panels(runs)
    if not charts:
        raise ArgumentError(
            "source", list(runs), "nothing was logged: set logging_steps lower than the steps of the run"
        )
    figure_class()
    for name in set(runs) - {line.run for chart in charts for line in chart.lines}:
        logger.warning("%s: nothing was logged in it yet", name)
    picture, page = Path(folder) / "report.png", Path(folder) / "report.html"
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        as_png(charts, list(runs), title, picture)
        page.write_text(as_page(runs, title, charts), encoding="utf-8")
    except OSError as error:
        fix = f"it cannot be written ({error.strerror}); name another folder"
        raise ArgumentError("folder", str(folder), fix) from error
    return picture, page


def named_runs(source: Any) -> dict[str, History]:
    """Each run's history by the shortest name that tells it from the others."""
    if isinstance(source, str | Path):
        source = [source]
    if source and all(isinstance(item, str | Path) for item in source):
        return dict(zip(short_names(source), (read_history(item) for item in source), strict=True))
    return {"run": source}


def short_names(paths: Sequence[str | Path]) -> list[str]:
    """The paths without what all of them share at their beginning."""
    whole = [Path(os.path.abspath(path)) for path in paths]  # noqa: PTH100  # resolve() would follow links
    whole = [path.parent if path.suffix in (".json", ".jsonl") and len(set(whole)) > 1 else path for path in whole]
    if len(set(whole)) < len(paths):
        return [f"{path} ({number})" for number, path in enumerate(paths, 1)]
    if len(whole) == 1:
        return [whole[0].name]
    shared = Path(os.path.commonpath(whole))
    return [path.relative_to(shared).as_posix() if path != shared else path.name for path in whole]


def as_page(runs: Mapping[str, History], title: str, charts: Sequence[Panel]) -> str:
    """The whole page: markup, style, script and numbers in one file."""
    data = {"runs": list(runs), "colours": COLOURS, "panels": [panel_data(panel) for panel in charts]}
    parts = {
        "title": html.escape(title),
        "about": html.escape(about(runs)),
        "style": (HERE / "page.css").read_text(encoding="utf-8"),
        "table": table(runs),
        # What would end the element or be no JSON for a browser is written otherwise.
        "data": json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
        "script": (HERE / "page.js").read_text(encoding="utf-8"),
    }
    page = (HERE / "page.html").read_text(encoding="utf-8")
    for name, text in parts.items():
        page = page.replace(f"<!-- {name} -->", text, 2 if name == "title" else 1)
    return page


def panel_data(panel: Panel) -> dict[str, Any]:
    return {"title": panel.title, "lines": [line_data(line) for line in panel.lines]}


def line_data(line: Line) -> dict[str, Any]:
    return {"run": line.run, "name": line.name, "points": [point_data(point) for point in line.points]}


def point_data(point: Point) -> list[float | None]:
    value = point.value if math.isfinite(point.value) else None
    return [point.step, point.epoch, None if point.seconds is None else round(point.seconds, 3), value]


def about(runs: Mapping[str, History]) -> str:
    """One line on what is shown."""
    steps = [max((int(numbers(entry).get("step", 0)) for entry in history), default=0) for history in runs.values()]
    if len(runs) > 1:
        return f"{len(runs)} runs, up to {max(steps):,} steps"
    (history,) = runs.values()
    epochs = [entry["epoch"] for entry in map(numbers, history) if "epoch" in entry]
    passes = f", {epochs[-1]:.4g} passes over the data" if epochs else ""
    return f"{steps[0]:,} steps{passes}"


def table(runs: Mapping[str, History]) -> str:
    """The last numbers of each run."""
    columns = {name: summary(history) for name, history in runs.items()}
    names = list(dict.fromkeys(name for values in columns.values() for name in values))
    if not names:
        return ""
    heads = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in columns)
    rows = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th>'
        + "".join(f"<td>{shown(values[name]) if name in values else ''}</td>" for values in columns.values())
        + "</tr>"
        for name in names
    )
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="Numbers at the end">'
        f'<table><thead><tr><th scope="col">at the end</th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def shown(value: float) -> str:
    """A number for people: thousands apart, five significant digits."""
    return f"{value:,.0f}" if abs(value) >= 1e5 and value == int(value) and abs(value) < 1e15 else f"{value:.5g}"
