"""Memory of each setup as stacked bars: in a terminal by characters, in a file by matplotlib (extra `picture`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .errors import ConfigError
from .memory import PARTS
from .phrases import phrase
from .plan import GIB, Choice

SHADES = dict(zip(PARTS, "█▓▒░·", strict=True))
LETTERS = dict(zip(PARTS, "WGSAB", strict=True))


def bars(choices: Sequence[Choice], limit: int, width: int = 48, encoding: str | None = "utf-8") -> list[str]:
    """A line for each setup that can work, on one scale, with the limit marked.

    Args:
        choices: The setups.
        limit: Bytes of a GPU that can be used.
        width: Characters for the longest bar.
        encoding: Of where the lines go; letters stand for shades where it has none.
    """
    shown = [choice for choice in choices if choice.memory is not None]
    if not shown:
        return []
    shades = SHADES if can_shade(encoding) else LETTERS
    # A setup far beyond the limit would squeeze all others to nothing: its bar is cut.
    longest = min(max(choice.memory.total for choice in shown if choice.memory), 3 * limit)
    scale = width / max(longest, limit)
    names = max(len(choice.setup.name) for choice in shown)
    mark = round(limit * scale)
    usable = phrase("{size} GiB can be used", size=f"{limit / GIB:.1f}")
    lines = [f"{'':{names}}  {'':{mark}}| {usable}"]
    for choice in shown:
        assert choice.memory is not None
        bar, end = "", 0.0
        for part, size in choice.memory.parts.items():
            end += size * scale
            bar += shades[part] * (round(min(end, width)) - len(bar))
        if end > width + 0.5:
            bar += ">"
        if len(bar) <= mark:
            bar = bar.ljust(mark) + "|"
        lines.append(f"{choice.setup.name:{names}}  {bar}")
    lines.append(f"{'':{names}}  " + "  ".join(f"{shade} {phrase(part)}" for part, shade in shades.items()))
    return lines


def can_shade(encoding: str | None) -> bool:
    """Whether an encoding has the block characters."""
    try:
        "".join(SHADES.values()).encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def draw(choices: Sequence[Choice], limit: int, path: str | Path) -> None:
    """A picture of the bars.

    Args:
        choices: The setups.
        limit: Bytes of a GPU that can be used.
        path: The file, such as memory.png or memory.svg.

    Raises:
        ConfigError: matplotlib is missing, or cannot write such a file.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        fix = phrase('install what draws it: pip install "mudarrib-launch[picture]"; without --picture bars are text')
        raise ConfigError("--picture", str(path), fix) from error
    shown = [choice for choice in choices if choice.memory is not None]
    figure = Figure(figsize=(9, 0.4 * len(shown) + 1.6), layout="constrained")
    axes = figure.subplots()
    names = [choice.setup.name + ("" if choice.fits else " (does not fit)") for choice in shown]
    left = [0.0] * len(shown)
    for part in PARTS:
        sizes = [choice.memory.parts[part] / GIB for choice in shown if choice.memory]
        axes.barh(names, sizes, left=left, label=part)
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    axes.axvline(limit / GIB, color="black", linestyle="--", label="can be used")
    axes.set_xlim(0, min(max(*left, limit / GIB), 3 * limit / GIB) * 1.05)
    axes.invert_yaxis()
    axes.set_xlabel("GiB on each GPU")
    axes.legend(ncols=3, fontsize="small")
    try:
        Path(path).expanduser().parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(Path(path).expanduser())
    except (ValueError, OSError) as error:
        raise ConfigError(
            "--picture", str(path), phrase("give a file such as memory.png or memory.svg: {problem}", problem=error)
        ) from error
