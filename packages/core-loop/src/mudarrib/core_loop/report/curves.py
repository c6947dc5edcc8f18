"""From log histories to the series that are drawn. Plain numbers."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..callbacks.jsonl import FILE as LINES_FILE
from ..errors import ArgumentError

Entry = Mapping[str, Any]
History = Sequence[Entry]
STATE_FILE = "trainer_state.json"
NOT_DRAWN = ("step", "epoch", "time", "total_flos", "num_input_tokens_seen", "eval_steps_per_second")
PLACES = ("step", "epoch", "time")
FIRST = ("loss", "learning rate")
LAST = ("gradient norm", "tokens per second", "samples per second", "steps per second", "memory")
MOST_POINTS = 1500


@dataclass(frozen=True)
class Point:
    """A logged number and where in the run it was logged; `seconds` since the run's first log, if known."""

    step: float
    epoch: float | None
    seconds: float | None
    value: float


@dataclass
class Line:
    """One number of one run, through the run."""

    run: str
    name: str
    points: list[Point] = field(default_factory=list)


@dataclass
class Panel:
    """One chart."""

    title: str
    lines: list[Line] = field(default_factory=list)


def read_history(source: str | Path) -> list[dict[str, Any]]:
    """The log history of a run, ours or the peers', over or under way.

    Args:
        source: A `trainer_state.json`, a `log_history.jsonl`, a checkpoint, or a run's folder, of which the growing
            log is taken, or else the newest checkpoint.

    Raises:
        ArgumentError: there is none, or it is not one.
    """
    path = history_file(Path(source))
    try:
        text = path.read_text(encoding="utf-8")
        history = list(whole_lines(text)) if path.suffix == ".jsonl" else log_history(json.loads(text))
    except FileNotFoundError as error:
        raise ArgumentError("RUN", str(source), "there is no such file or folder") from error
    except OSError as error:
        raise ArgumentError("RUN", str(source), f"it cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        fix = f"{path.name} is not the JSON that a trainer writes; give a {STATE_FILE}, or a folder with one"
        raise ArgumentError("RUN", str(source), fix) from error
    return history


def log_history(state: Any) -> list[dict[str, Any]]:
    """The log history of what a `trainer_state.json` holds; a ValueError if it is none."""
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        raise ValueError("no log_history")
    return history


def history_file(path: Path) -> Path:
    """The file of a run that holds its history."""
    if not path.is_dir():
        return path
    for name in (LINES_FILE, STATE_FILE):
        if (path / name).is_file():
            return path / name
    states = [item for item in path.glob(f"checkpoint-*/{STATE_FILE}") if step_of(item) is not None]
    if not states:
        raise ArgumentError("RUN", str(path), f"give a {STATE_FILE}, a checkpoint, or a folder with checkpoints")
    return max(states, key=lambda item: step_of(item) or 0)


def whole_lines(text: str) -> Iterable[dict[str, Any]]:
    """The entries of a growing log, whose last line may not be whole yet; a ValueError for any other that is none."""
    for line in text.splitlines(keepends=True):
        if line.endswith("\n") and line.strip():
            entry = json.loads(line)
            if not isinstance(entry, dict):
                raise ValueError("not an object")
            yield entry


def step_of(state: Path) -> int | None:
    digits = state.parent.name.removeprefix("checkpoint-")
    return int(digits) if digits.isdigit() else None


def panel_of(name: str) -> str:
    """The chart that a logged number belongs to."""
    bare = name.removeprefix("eval_").removeprefix("train_")
    if bare.endswith("loss"):
        return "loss"
    if bare == "learning_rate":
        return "learning rate"
    if bare == "grad_norm":
        return "gradient norm"
    if bare.startswith("memory") or "_mem_" in bare:
        return "memory"
    return bare.replace("_", " ")


def is_drawn(name: str) -> bool:
    """Whether a number is worth a curve; those of the whole run (`train_...`) are in the table alone."""
    return name not in NOT_DRAWN and not name.endswith("runtime") and not name.startswith("train_")


def is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) <= sys.float_info.max


def numbers(entry: Entry) -> dict[str, Any]:
    """What can be drawn of an entry; a place on an axis must be finite."""
    return {
        name: value
        for name, value in entry.items()
        if is_number(value) and (name not in PLACES or math.isfinite(value))
    }


def with_rates(history: History) -> list[dict[str, Any]]:
    """The history with `steps_per_second` where the log says when it was written; evaluations are left out of it."""
    entries: list[dict[str, Any]] = []
    before: Entry | None = None
    elsewhere = 0.0
    for entry in history:
        made = dict(entry)
        elsewhere += sum(float(v) for k, v in entry.items() if k.endswith("_runtime") and k != "train_runtime")
        if "loss" in entry and "time" in entry:
            if before is not None:
                seconds = entry["time"] - before["time"] - elsewhere
                steps = entry.get("step", 0) - before.get("step", 0)
                if seconds > 0 and steps > 0:
                    made["steps_per_second"] = steps / seconds
            before, elsewhere = entry, 0.0
        entries.append(made)
    return entries


def panels(runs: Mapping[str, History]) -> list[Panel]:
    """The charts of one or several runs: loss first, then what else was logged.

    Args:
        runs: Name of a run to its log history.
    """
    charts: dict[str, Panel] = {}
    lines: dict[tuple[str, str], Line] = {}
    for run, history in runs.items():
        entries = [numbers(entry) for entry in history]
        began = next((entry["time"] for entry in entries if "time" in entry), None)
        for number, entry in enumerate(with_rates(entries)):
            for name, value in entry.items():
                if not is_drawn(name):
                    continue
                if (run, name) not in lines:
                    lines[run, name] = Line(run, name)
                    title = panel_of(name)
                    charts.setdefault(title, Panel(title)).lines.append(lines[run, name])
                lines[run, name].points.append(point(entry, number, began, float(value)))
    for line in lines.values():
        line.points = thinned(line.points)
    order = {title: number for number, title in enumerate((*FIRST, "", *LAST))}
    return sorted(charts.values(), key=lambda panel: (order.get(panel.title, order[""]), panel.title))


def point(entry: Entry, number: int, began: float | None, value: float) -> Point:
    epoch, moment = entry.get("epoch"), entry.get("time")
    return Point(
        step=float(entry.get("step", number)),
        epoch=None if epoch is None else float(epoch),
        seconds=None if began is None or moment is None else float(moment) - began,
        value=value,
    )


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """At most so many points, the least and the greatest of each stretch among them, so that no peak is lost."""
    if len(points) <= most:
        return list(points)
    size = math.ceil(2 * len(points) / most)
    kept: list[Point] = []
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        broken = [item for item in stretch if not math.isfinite(item.value)]
        low, high = (choose(stretch, key=lambda item: item.value) for choose in (min, max))
        kept += sorted({*broken[:1], low, high}, key=lambda item: item.step)
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def summary(history: History) -> dict[str, float]:
    """The last value of each number that was evaluated or is of the whole run."""
    last: dict[str, float] = {}
    for entry in history:
        for name, value in entry.items():
            if name.startswith(("eval_", "train_")) and is_number(value):
                last[name] = float(value)
    return last
