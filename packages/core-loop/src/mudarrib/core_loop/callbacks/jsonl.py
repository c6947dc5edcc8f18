"""The log history as a file that grows with the run."""

from __future__ import annotations

import json
from typing import Any

from .base import TrainerCallback

FILE = "log_history.jsonl"


class JsonLinesCallback(TrainerCallback):
    """Keeps `log_history.jsonl` in `output_dir`: one log a line, also of a run that is killed."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero and args.should_save:
            lines = "".join(json.dumps(entry, default=str) + "\n" for entry in state.log_history)
            args.folder.mkdir(parents=True, exist_ok=True)
            (args.folder / FILE).write_text(lines, encoding="utf-8")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if state.is_world_process_zero and args.should_save and state.log_history and state.max_steps > 0:
            with (args.folder / FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(state.log_history[-1], default=str) + "\n")
