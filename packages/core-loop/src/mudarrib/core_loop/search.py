"""Hyper-parameter search by optuna."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from .callbacks.base import TrainerCallback
from .errors import ArgumentError

STUDY = ("study_name", "storage", "sampler", "pruner", "load_if_exists")


class BestRun(NamedTuple):
    """The best trial: its number, its objective, and the arguments that it tried."""

    run_id: str
    objective: float | list[float]
    hyperparameters: dict[str, Any]
    run_summary: Any = None


def usual_space(trial: Any) -> dict[str, Any]:
    """Learning rate, epochs, seed and batch size."""
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-6, 1e-4, log=True),
        "num_train_epochs": trial.suggest_int("num_train_epochs", 1, 5),
        "seed": trial.suggest_int("seed", 1, 40),
        "per_device_train_batch_size": trial.suggest_categorical("per_device_train_batch_size", [4, 8, 16, 32, 64]),
    }


def usual_objective(metrics: dict[str, float]) -> float:
    """The sum of the metrics, or the loss where there is no other."""
    left = {name: value for name, value in metrics.items() if name != "epoch"}
    left = {name: v for name, v in left.items() if not name.endswith(("_runtime", "_per_second"))}
    loss = left.pop("eval_loss", None)
    if not left and loss is None:
        raise ArgumentError("compute_objective", sorted(metrics), "the evaluation has no metric: give eval_dataset")
    return float(sum(left.values())) if left else float(loss)  # type: ignore[arg-type]  # not None here


class ReportsToTrial(TrainerCallback):
    """Tells a trial each evaluation, so that it may be given up early."""

    def __init__(self, trial: Any, objective: Callable[[dict[str, float]], float]) -> None:
        self.trial = trial
        self.objective = objective
        self.last: float | None = None

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        import optuna

        self.last = self.objective(dict(metrics))
        self.trial.report(self.last, state.global_step)
        if self.trial.should_prune():
            raise optuna.TrialPruned()


def search(
    trainer: Any,
    space: Callable[[Any], dict[str, Any]] | None,
    objective: Callable[[dict[str, float]], float] | None,
    n_trials: int,
    direction: str | list[str],
    backend: str | None,
    settings: dict[str, Any],
) -> BestRun:
    """Run the trials; see `Trainer.hyperparameter_search`."""
    if backend not in (None, "optuna"):
        raise ArgumentError("backend", backend, "give 'optuna'")
    if trainer.model_init is None:
        raise ArgumentError(
            "model_init", None, "give the Trainer model_init= instead of model=: each trial needs a new one"
        )
    try:
        import optuna
    except ImportError as error:
        raise ArgumentError("backend", "optuna", 'pip install "mudarrib-core-loop[search]"') from error
    compute, given = objective or usual_objective, trainer.args

    def run(trial: Any) -> float:
        trainer.args = arguments_of(given, (space or usual_space)(trial), trial.number)
        trainer.callback_handler.args = trainer.args
        trainer.train_batch_size = trainer.args.train_batch_size
        reports = ReportsToTrial(trial, compute)
        trainer.callback_handler.add_callback(reports)
        try:
            trainer.train(trial=trial)
            return reports.last if reports.last is not None else compute(trainer.evaluate())
        finally:
            trainer.callback_handler.pop_callback(reports)
            trainer.args = trainer.callback_handler.args = given
            trainer.train_batch_size = given.train_batch_size

    study_settings = {name: settings.pop(name) for name in STUDY if name in settings}
    study = optuna.create_study(direction=direction, **study_settings)
    study.optimize(run, n_trials=n_trials, **settings)
    best = study.best_trial
    return BestRun(str(best.number), best.value, best.params, study)


def arguments_of(given: Any, tried: dict[str, Any], number: int) -> Any:
    """A copy of the arguments with what a trial tries, in a folder of its own."""
    args = copy.copy(given)
    for name, value in tried.items():
        if not hasattr(args, name):
            raise ArgumentError("hp_space", name, "it is no argument of TrainingArguments")
        setattr(args, name, value)
    args.output_dir = str(given.folder / f"run-{number}")
    args.__post_init__()
    return args
