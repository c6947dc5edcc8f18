"""Hyper-parameter search by the real optuna."""

import pytest
from tiny import Regressor, Rows, arguments

from mudarrib.core_loop import ArgumentError, Trainer


def make(folder, **settings):
    return Trainer(model_init=Regressor, args=arguments(folder, max_steps=3, eval_strategy="steps", eval_steps=1, **settings),
                   train_dataset=Rows(), eval_dataset=Rows(8))  # fmt: skip


def test_the_best_trial_is_found(tmp_path):
    trainer = make(tmp_path)
    before = trainer.args.learning_rate
    best = trainer.hyperparameter_search(
        hp_space=lambda trial: {"learning_rate": trial.suggest_categorical("learning_rate", [1e-6, 0.3])},
        n_trials=6, direction="minimize",
    )  # fmt: skip
    assert best.hyperparameters == {"learning_rate": 0.3}
    assert best.objective < 10
    assert trainer.args.learning_rate == before and trainer.args.output_dir == str(tmp_path)
    assert (tmp_path / f"run-{best.run_id}").parent == tmp_path


def test_an_objective_of_the_users(tmp_path):
    best = make(tmp_path).hyperparameter_search(
        hp_space=lambda trial: {"seed": trial.suggest_int("seed", 1, 3)}, compute_objective=lambda metrics: 7.0,
        n_trials=2, direction="maximize",
    )  # fmt: skip
    assert best.objective == 7.0


def test_what_cannot_be_searched_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="model_init"):
        Trainer(model=Regressor(), args=arguments(tmp_path), train_dataset=Rows()).hyperparameter_search()
    with pytest.raises(ArgumentError, match="hp_space"):
        make(tmp_path).hyperparameter_search(hp_space=lambda trial: {"learning_rat": 1}, n_trials=1)
    with pytest.raises(ArgumentError, match="hp_space|ray"):
        make(tmp_path).hyperparameter_search(backend="ray")
    with pytest.raises(ArgumentError, match="backend"):
        make(tmp_path).hyperparameter_search(backend="sigopt")
