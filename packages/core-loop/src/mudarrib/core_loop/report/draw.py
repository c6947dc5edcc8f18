"""The picture, by matplotlib, which is loaded only here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from .curves import Line, Panel

COLOURS = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#dc2626", "#0891b2", "#be185d", "#65a30d")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1, 2)))
FEW = 30
BYTES_IN_GIB = 2**30


def figure_class() -> Any:
    """matplotlib's figure class, with no window.

    Raises:
        ArgumentError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ArgumentError("report_to", "report", 'pictures need: pip install "mudarrib-core-loop[report]"') from error
    return Figure


def label_of(line: Line, panel: Panel, runs: Sequence[str]) -> str:
    """What tells a line from the others of its chart."""
    names = {other.name for other in panel.lines}
    if len(runs) == 1:
        return line.name
    return f"{line.run}: {line.name}" if len(names) > 1 else line.run


def style_of(line: Line, panel: Panel, runs: Sequence[str]) -> dict[str, Any]:
    """With one run a colour for each number; with several a colour for each run and a dash for each number."""
    names = list(dict.fromkeys(other.name for other in panel.lines))
    number = names.index(line.name)
    if len(runs) == 1:
        return {"color": COLOURS[number % len(COLOURS)], "linestyle": "-"}
    return {
        "color": COLOURS[list(runs).index(line.run) % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
    }


def draw_panel(axes: Any, panel: Panel, runs: Sequence[str]) -> None:
    """Draw the lines of one chart."""
    scale = BYTES_IN_GIB if panel.title == "memory" else 1
    for line in panel.lines:
        steps = [point.step for point in line.points]
        values = [point.value / scale if math.isfinite(point.value) else math.nan for point in line.points]
        marker = "o" if len(steps) < FEW else None
        style = style_of(line, panel, runs)
        axes.plot(steps, values, label=label_of(line, panel, runs), marker=marker, markersize=3, linewidth=1.6, **style)
        broken = [point.step for point in line.points if not math.isfinite(point.value)]
        # On the edge of the chart, since a value that is not finite has no height.
        axes.plot(broken, [0.97] * len(broken), "x", color=style["color"], transform=axes.get_xaxis_transform())
    axes.set_title(panel.title + (" (GiB)" if scale > 1 else ""), loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel("step", fontsize=9, color="#6b7280")
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8, colors="#6b7280", length=0)
    axes.margins(x=0.02)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#d1d5db")
    if len(panel.lines) > 1 or len(runs) > 1:
        axes.legend(fontsize=8, frameon=False)


def as_png(charts: Sequence[Panel], runs: Sequence[str], title: str, path: Path) -> None:
    """All charts in one picture."""
    columns = min(2 if len(charts) < 5 else 3, len(charts))
    rows = -(-len(charts) // columns)
    figure = figure_class()(figsize=(5.4 * columns, 3.2 * rows + 0.5), layout="constrained")
    figure.suptitle(title, fontsize=14, fontweight="bold", x=0.01, ha="left")
    for number, panel in enumerate(charts):
        draw_panel(figure.add_subplot(rows, columns, number + 1), panel, runs)
    figure.savefig(path, dpi=130, facecolor="white")
