"""What a Trainer leaves behind: the model's files, metrics as files, pushes to the hub, searches. Delegation only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import weights
from .callbacks.progress import table_line
from .waiting import shown_if_long

if TYPE_CHECKING:
    import torch

    from .arguments import TrainingArguments
    from .checkpointing import Checkpointing
    from .engine import Engine
    from .search import BestRun
    from .state import TrainerState


class Publishing:
    """The methods of `Trainer` that write files or send them."""

    args: TrainingArguments
    engine: Engine
    model: torch.nn.Module
    model_wrapped: torch.nn.Module
    processing_class: Any
    state: TrainerState
    checkpointing: Checkpointing
    hp_name: Callable[[Any], str] | None

    def is_world_process_zero(self) -> bool:
        """Whether this is the first process of all."""
        return self.args.process_index == 0

    def save_model(self, output_dir: str | None = None) -> None:
        """Write the model, its processing class and the arguments into a folder (`output_dir`), without pickle."""
        folder = self.args.folder if output_dir is None else Path(output_dir)
        state = self.checkpointing.whole_state()
        if self.args.should_save:
            with shown_if_long(self, f"Saving {folder.name}"):
                weights.save(self.engine.unwrap(self.model), folder, state)
                self.save_companions(folder)

    def save_companions(self, folder: Path) -> None:
        """Write what belongs to the model: its processing class, and the arguments it was trained with."""
        if hasattr(self.processing_class, "save_pretrained"):
            self.processing_class.save_pretrained(folder)
        self.args.to_json(folder / "training_args.json")

    def save_state(self) -> None:
        """Write `trainer_state.json` into `output_dir`."""
        if self.args.should_save:
            self.state.save_to_json(self.args.folder / "trainer_state.json")

    def log_metrics(self, split: str, metrics: dict[str, Any]) -> None:
        """Print metrics as a table line, under the name of their data ("train", "eval", "test")."""
        if self.is_world_process_zero():
            print(f"***** {split} metrics *****\n{table_line(metrics)}", flush=True)

    def save_metrics(self, split: str, metrics: dict[str, Any], combined: bool = True) -> None:
        """Write metrics to `<split>_results.json`, and into `all_results.json` beside those of other splits."""
        if not self.is_world_process_zero():
            return
        files = {self.args.folder / f"{split}_results.json": metrics}
        if combined:
            path = self.args.folder / "all_results.json"
            before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            files[path] = {**before, **metrics}
        for path, values in files.items():
            path.write_text(json.dumps(values, indent=4, sort_keys=True) + "\n", encoding="utf-8")

    def push_to_hub(self, commit_message: str | None = "End of training", blocking: bool = True, **card: Any) -> str:
        """Save the model with its card and push it.

        Args:
            commit_message: First line of the commit.
            blocking: Return when it has arrived, or has failed.
            **card: Fields of the model card, such as language=, license=, tags=, dataset=.

        Returns:
            The repository's name.
        """
        return self.checkpointing.pushing.final(commit_message, blocking, card)

    def create_model_card(self, **card: Any) -> None:
        """Write `README.md` for the model into `output_dir`: what it is, how it was trained, how well it does."""
        if self.is_world_process_zero():
            self.checkpointing.pushing.write_card(card)

    def hyperparameter_search(
        self,
        hp_space: Callable[[Any], dict[str, Any]] | None = None,
        compute_objective: Callable[[dict[str, float]], float] | None = None,
        n_trials: int = 20,
        direction: str | list[str] = "minimize",
        backend: str | None = None,
        hp_name: Callable[[Any], str] | None = None,
        **settings: Any,
    ) -> BestRun:
        """Try settings and return the best; needs `model_init`, and optuna or ray.

        Args:
            hp_space: `f(trial)`, the arguments to try; by default learning rate, epochs, seed and batch size.
            compute_objective: `f(metrics)`, what to optimise; by default the sum of the metrics, or the loss.
            n_trials: How many runs.
            direction: "minimize" or "maximize".
            backend: "optuna" (the default) or "ray".
            hp_name: `f(trial)`, the name of a run.
            **settings: For `optuna.create_study` (`study_name`, `storage`, `sampler`, `pruner`) and for
                `study.optimize` (`timeout`, `n_jobs`); or for `ray.tune.TuneConfig`.

        Raises:
            ArgumentError: there is no `model_init`, or optuna is missing.
        """
        from .search import search

        self.hp_name = hp_name
        return search(self, hp_space, compute_objective, n_trials, direction, backend, settings)
