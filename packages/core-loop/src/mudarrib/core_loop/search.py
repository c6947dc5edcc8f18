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
    if backend not in (None, "optuna", "ray"):
        raise ArgumentError("backend", backend, "give 'optuna' or 'ray'")
    if trainer.model_init is None:
        raise ArgumentError(
            "model_init", None, "give the Trainer model_init= and no model=: each trial needs a new one"
        )
    compute = objective or usual_objective
    if backend == "ray":
        return by_ray(trainer, space, compute, n_trials, str(direction), settings)
    return by_optuna(trainer, space, compute, n_trials, direction, settings)


def by_optuna(
    trainer: Any,
    space: Callable[[Any], dict[str, Any]] | None,
    compute: Callable[[dict[str, float]], float],
    n_trials: int,
    direction: str | list[str],
    settings: dict[str, Any],
) -> BestRun:
    """Trials one after the other in this process, given up early where the study's pruner says so."""
    try:
        import optuna
    except ImportError as error:
        raise ArgumentError("backend", "optuna", 'pip install "mudarrib-core-loop[search]"') from error

    def run(trial: Any) -> float:
        reports = ReportsToTrial(trial, compute)
        return one_trial(trainer, (space or usual_space)(trial), trial.number, trial, compute, reports)

    study_settings = {name: settings.pop(name) for name in STUDY if name in settings}
    study = optuna.create_study(direction=direction, **study_settings)
    study.optimize(run, n_trials=n_trials, **settings)
    best = study.best_trial
    return BestRun(str(best.number), best.value, best.params, study)


def by_ray(
    trainer: Any,
    space: Callable[[Any], dict[str, Any]] | None,
    compute: Callable[[dict[str, float]], float],
    n_trials: int,
    direction: str,
    settings: dict[str, Any],
) -> BestRun:
    """Trials in ray's own processes, several at a time where there is room.

    `hp_space` is called with None and returns ray's search space; `settings` go to `ray.tune.TuneConfig`.
    """
    try:
        from ray import tune
    except ImportError as error:
        raise ArgumentError("backend", "ray", 'pip install "ray[tune]"') from error
    if space is None:
        raise ArgumentError("hp_space", None, "give a function that returns a search space of ray.tune")

    def run(tried: dict[str, Any]) -> dict[str, float]:
        number = int(str(tune.get_context().get_trial_id()).rsplit("_", 1)[-1])
        return {"objective": one_trial(trainer, tried, number, tried, compute, None)}

    mode = "max" if direction == "maximize" else "min"
    config = tune.TuneConfig(metric="objective", mode=mode, num_samples=n_trials, **settings)
    results = tune.Tuner(run, param_space=space(None), tune_config=config).fit()
    best = results.get_best_result()
    return BestRun(best.path, best.metrics["objective"], dict(best.config), results)


def one_trial(
    trainer: Any,
    tried: dict[str, Any],
    number: int,
    trial: Any,
    compute: Callable[[dict[str, float]], float],
    reports: ReportsToTrial | None,
) -> float:
    """Train with what a trial tries; the arguments are as before afterwards."""
    given = trainer.args
    trainer.args = trainer.callback_handler.args = arguments_of(given, tried, number)
    trainer.train_batch_size = trainer.args.train_batch_size
    if reports is not None:
        trainer.callback_handler.add_callback(reports)
    try:
        trainer.train(trial=trial)
        if reports is not None and reports.last is not None:
            return reports.last
        return compute(trainer.evaluate())
    finally:
        if reports is not None:
            trainer.callback_handler.pop_callback(reports)
        trainer.args = trainer.callback_handler.args = given
        trainer.train_batch_size = given.train_batch_size


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
