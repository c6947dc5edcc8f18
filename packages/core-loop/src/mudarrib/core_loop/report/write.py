"""Write the report of one run, or of several laid over each other."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from .curves import History, panels, read_history, summary
from .draw import as_png, as_svg

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 1rem; color: #1f2937; }
h1 { font-size: 1.4rem; margin: 0 0 1rem; }
.charts { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.charts svg { width: 100%; height: auto; border: 1px solid #e5e7eb; border-radius: .5rem; background: white; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem; }
th, td { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid #e5e7eb; }
th:first-child, td:first-child { text-align: left; }
"""


def write_report(
    source: History | str | Path | Sequence[str | Path], folder: str | Path, title: str = "Training"
) -> tuple[Path, Path]:
    """Draw the curves of a run.

    Args:
        source: A log history, or the path of a `trainer_state.json`, a checkpoint or a run's folder; several
            paths are laid over each other.
        folder: Where `report.png` and `report.html` go; made if it is not there.
        title: Shown above the charts.

    Returns:
        The paths of the picture and of the page, which needs no other file and no network.

    Raises:
        ArgumentError: a path holds no log history, nothing was logged, or matplotlib is missing.
    """
    runs = named_runs(source)
    charts = panels(runs)
    if not charts:
        raise ArgumentError(
            "source", list(runs), "nothing was logged: set logging_steps lower than the steps of the run"
        )
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    picture, page = target / "report.png", target / "report.html"
    as_png(charts, title, picture)
    page.write_text(as_page(runs, title, [as_svg(panel) for panel in charts]), encoding="utf-8")
    return picture, page


def named_runs(source: Any) -> dict[str, History]:
    if isinstance(source, str | Path):
        source = [source]
    if source and all(isinstance(item, str | Path) for item in source):
        return {str(item): read_history(item) for item in source}
    return {"run": source}


def as_page(runs: Mapping[str, History], title: str, charts: Sequence[str]) -> str:
    """The whole page."""
    shown = html.escape(title)
    viewport = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f'<meta charset="utf-8">{viewport}<title>{shown}</title>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n<h1>{shown}</h1>\n'
        f'<div class="charts">\n{"".join(charts)}\n</div>\n{table(runs)}\n</body></html>\n'
    )


def table(runs: Mapping[str, History]) -> str:
    """The last numbers of each run."""
    columns = {name: summary(history) for name, history in runs.items()}
    names = list(dict.fromkeys(name for values in columns.values() for name in values))
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td>"
        + "".join(f"<td>{format(values[name], '.5g') if name in values else ''}</td>" for values in columns.values())
        + "</tr>"
        for name in names
    )
    return f'<div class="wide"><table><tr><th>at the end</th>{heads}</tr>{rows}</table></div>'
