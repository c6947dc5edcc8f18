"""Where a run writes, and when it saves."""

from __future__ import annotations

from dataclasses import dataclass

from .field import argument
from .names import SaveStrategy


@dataclass
class CheckpointArguments:
    output_dir: str | None = argument(None, "Folder for checkpoints and logs; 'trainer_output' if not given.")
    save_strategy: SaveStrategy | str = argument(
        "steps", "When to save: 'no', 'steps' (every save_steps), 'epoch', or 'best' (at each new best metric)."
    )
    save_steps: float = argument(500, "Steps between saves, or a share of all steps if below 1.")
    save_total_limit: int | None = argument(
        None, "How many checkpoints stay; the best and the newest always do. None keeps all."
    )
    save_only_model: bool = argument(False, "Save the model without what is needed to resume.")
    save_on_each_node: bool = argument(False, "Save on every machine, for folders that are not shared.")
    enable_jit_checkpoint: bool = argument(
        False, "Save when SIGTERM comes. Here that is always so while handle_signals is True."
    )
    background_save: bool = argument(False, "Write checkpoints in a thread, so that training waits only for a copy.")
    handle_signals: bool = argument(
        True, "On SIGTERM or SIGINT finish the step, save, and exit with 128 + its number; a second one stops at once."
    )
    load_best_model_at_end: bool = argument(
        False, "Load the best checkpoint after training; it is kept whatever save_total_limit says."
    )
    metric_for_best_model: str | None = argument(
        None, "Metric that chooses the best model, with or without 'eval_'; 'loss' where one is needed."
    )
    greater_is_better: bool | None = argument(
        None, "Whether a higher metric is better; by default unless its name ends in 'loss'."
    )
    ignore_data_skip: bool = argument(
        False, "On resume begin the epoch anew, instead of going on with the row where training stopped."
    )
    restore_callback_states_from_checkpoint: bool = argument(
        False, "On resume also restore what callbacks were built with; what they counted comes back always."
    )
    resume_from_checkpoint: str | None = argument(
        None, "A checkpoint folder, for scripts to pass to train(); Trainer itself does not read it."
    )
