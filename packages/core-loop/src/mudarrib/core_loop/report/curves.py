"""From log histories to the series that are drawn. Plain numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ArgumentError

History = Sequence[Mapping[str, Any]]
NOT_DRAWN = ("step", "epoch", "total_flos")
STATE_FILE = "trainer_state.json"
FIRST = ("loss", "learning rate", "gradient norm", "throughput", "memory")


@dataclass
class Panel:
    """One chart: a title, and for each line its name and its points (step, value)."""

    title: str
    lines: dict[str, list[tuple[float, float]]] = field(default_factory=dict)


def read_history(source: str | Path) -> list[dict[str, Any]]:
    """The log history of a `trainer_state.json`, of a checkpoint, or of the newest checkpoint of a run's folder.

    Raises:
        ArgumentError: there is none, or it is not one.
    """
    path = Path(source)
    if path.is_dir() and (path / STATE_FILE).is_file():
        path = path / STATE_FILE
    elif path.is_dir():
        states = [item for item in path.glob(f"checkpoint-*/{STATE_FILE}") if step_of(item) is not None]
        if not states:
            raise ArgumentError("RUN", str(source), f"give a {STATE_FILE}, a checkpoint, or a folder with checkpoints")
        path = max(states, key=lambda item: step_of(item) or 0)
    try:
        history = json.loads(path.read_text(encoding="utf-8"))["log_history"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArgumentError("RUN", str(source), f"it is no readable {STATE_FILE} ({type(error).__name__})") from error
    return list(history)


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
    if bare.endswith(("_per_second", "runtime")):
        return "throughput"
    if "_mem_" in bare:
        return "memory"
    return bare.replace("_", " ")


def panels(runs: Mapping[str, History]) -> list[Panel]:
    """The charts of one or several runs: loss first, then what else was logged more than once or evaluated.

    Args:
        runs: Name of a run to its log history. With several, lines carry the run's name.
    """
    charts: dict[str, Panel] = {}
    for run, history in runs.items():
        for entry in history:
            for name, value in entry.items():
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                if name in NOT_DRAWN or not is_number or name == "train_loss" or name.endswith("runtime"):
                    continue
                title = panel_of(name)
                line = name if len(runs) == 1 else f"{run}: {name}"
                points = charts.setdefault(title, Panel(title)).lines.setdefault(line, [])
                points.append((float(entry.get("step", len(points))), float(value)))
    order = {title: number for number, title in enumerate(FIRST)}
    return sorted(charts.values(), key=lambda panel: (order.get(panel.title, 1.5), panel.title))


def summary(history: History) -> dict[str, float]:
    """The last value of each number that was evaluated or is of the whole run."""
    last: dict[str, float] = {}
    for entry in history:
        for name, value in entry.items():
            if name.startswith(("eval_", "train_")) and isinstance(value, int | float):
                last[name] = float(value)
    return last
