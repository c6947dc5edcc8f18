"""The log history as a file that grows with the run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from .base import TrainerCallback

FILE = "log_history.jsonl"
MEASURED = ("time", "memory_bytes")


class JsonLinesCallback(TrainerCallback):
    """Keeps `log_history.jsonl` in `output_dir`: one log a line, also of a run that is killed.

    Each line also says when it was written (`time`, seconds since 1970) and the peak memory so far
    (`memory_bytes`: of the GPU, or of the process where there is none). `mudarrib-report` draws both.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero and args.should_save:
            args.folder.mkdir(parents=True, exist_ok=True)
            file = args.folder / FILE
            lines = (json.dumps(entry, default=str) + "\n" for entry in measured_again(file, state.log_history))
            file.write_text("".join(lines), encoding="utf-8")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if state.is_world_process_zero and args.should_save and state.log_history and state.max_steps > 0:
            entry = {**state.log_history[-1], "time": time.time(), "memory_bytes": peak_memory()}
            with (args.folder / FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry, default=str) + "\n")


def measured_again(file: Path, history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The history of a run that goes on, with what the file says of the same entries."""
    try:
        known = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return history
    written = {json.dumps(without(entry), sort_keys=True): entry for entry in known}
    return [written.get(json.dumps(entry, default=str, sort_keys=True), entry) for entry in history]


def without(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in MEASURED}


def peak_memory() -> int:
    """Bytes at the most so far, of the GPU if one is used, else of the process."""
    import resource

    import torch

    gpu = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    if gpu > 0:
        return int(gpu)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
