"""Charts by matplotlib, which is loaded only here."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from .curves import Panel

COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")


def pyplot() -> Any:
    """matplotlib's figure class, with no window.

    Raises:
        ArgumentError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ArgumentError("report_to", "report", 'pictures need: pip install "mudarrib-core-loop[report]"') from error
    return Figure


def draw_panel(axes: Any, panel: Panel) -> None:
    for number, (name, points) in enumerate(panel.lines.items()):
        steps, values = zip(*points, strict=True)
        marker = "o" if len(points) < 30 else None
        axes.plot(
            steps,
            values,
            label=name,
            color=COLOURS[number % len(COLOURS)],
            marker=marker,
            markersize=3.5,
            linewidth=1.6,
        )
    axes.set_title(panel.title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel("step", fontsize=9)
    axes.grid(alpha=0.25)
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if len(panel.lines) > 1 or next(iter(panel.lines)) != panel.title:
        axes.legend(fontsize=8, frameon=False)


def as_png(charts: Sequence[Panel], title: str, path: Path) -> None:
    """All charts in one picture."""
    columns = min(2, len(charts))
    rows = -(-len(charts) // columns)
    figure = pyplot()(figsize=(6.2 * columns, 3.3 * rows + 0.5), layout="constrained")
    figure.suptitle(title, fontsize=13)
    for number, panel in enumerate(charts):
        draw_panel(figure.add_subplot(rows, columns, number + 1), panel)
    figure.savefig(path, dpi=120, facecolor="white")


def as_svg(panel: Panel) -> str:
    """One chart as an SVG element that takes the width it is given."""
    import matplotlib

    figure = pyplot()(figsize=(6.2, 3.4), layout="constrained")
    draw_panel(figure.subplots(), panel)
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": panel.title, "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
