"""Callbacks: what they may return, who is called, what an exception says, and the standard ones."""

import pytest
from tiny import Regressor, Rows, arguments

from mudarrib.core_loop import (
    ArgumentError,
    DefaultFlowCallback,
    EarlyStoppingCallback,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
)
from mudarrib.core_loop.callbacks import EVENTS
from mudarrib.core_loop.callbacks.handler import listens


def make(folder, callbacks=None, **settings):
    return Trainer(
        model=Regressor(), args=arguments(folder, **settings), train_dataset=Rows(), eval_dataset=Rows(8),
        callbacks=callbacks,
    )  # fmt: skip


def stopping(returned):
    class Stops(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            return returned(state) if callable(returned) else returned

    return Stops


@pytest.mark.parametrize(
    "returned",
    [
        lambda state: {"should_training_stop": state.global_step == 2},
        lambda state: TrainerControl(should_training_stop=state.global_step == 2),
    ],
)
def test_a_dict_or_a_control_that_is_returned_takes_effect(tmp_path, returned):
    trainer = make(tmp_path, [stopping(returned)])
    trainer.train()
    assert trainer.state.global_step == 2


@pytest.mark.parametrize("returned", [None, {}])
def test_nothing_or_an_empty_dict_changes_nothing(tmp_path, returned):
    trainer = make(tmp_path, [stopping(returned)])
    trainer.train()
    assert trainer.state.global_step == 4


@pytest.mark.parametrize("returned", [{"should_stop": True}, 7])
def test_what_cannot_be_meant_is_refused(tmp_path, returned):
    with pytest.raises(ArgumentError, match=r"Stops\.on_step_end"):
        make(tmp_path, [stopping(returned)]).train()


@pytest.mark.parametrize("wrap", [lambda c: c, lambda c: c(), lambda c: [c], lambda c: [c()], lambda c: (c,)])
def test_one_or_a_list_class_or_instance(tmp_path, wrap):
    trainer = make(tmp_path, wrap(stopping({"should_training_stop": True})))
    trainer.train()
    assert trainer.state.global_step == 1


def test_the_old_spelling_with_one_line(tmp_path):
    with pytest.warns(FutureWarning, match="callback= is an old spelling of callbacks=") as caught:
        trainer = Trainer(model=Regressor(), args=arguments(tmp_path), train_dataset=Rows(),
                          callback=[stopping({"should_training_stop": True})])  # fmt: skip
    assert len([warning for warning in caught if warning.category is FutureWarning]) == 1
    trainer.train()
    assert trainer.state.global_step == 1


def test_no_callback_at_all_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="callbacks"):
        make(tmp_path, [object()])


def test_an_exception_names_the_callback_the_event_and_the_step(tmp_path):
    class Broken(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 3:
                raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more") as caught:
        make(tmp_path, [Broken]).train()
    assert caught.value.__notes__ == ["raised by the callback Broken in on_step_end, at step 3"]


def test_every_event_fires_with_the_objects(tmp_path):
    seen = {}

    def note(event):
        def method(self, args, state, control, **kwargs):
            seen[event] = kwargs

        return method

    Watch = type("Watch", (TrainerCallback,), {event: note(event) for event in EVENTS})
    trainer = make(tmp_path, [Watch], gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=2,
                   save_strategy="steps", save_steps=2, logging_steps=1)  # fmt: skip
    trainer.train()
    trainer.predict(Rows(4))
    assert set(seen) == set(EVENTS) - {"on_push_begin"}
    for name in ("model", "optimizer", "lr_scheduler", "train_dataloader"):
        assert seen["on_step_end"][name] is not None
    assert seen["on_prediction_step"]["eval_dataloader"] is not None
    assert "eval_loss" in seen["on_evaluate"]["metrics"] and "test_loss" in seen["on_predict"]["metrics"]
    assert "train_loss" in seen["on_log"]["logs"]


def test_events_that_nobody_defines_are_not_called():
    class One(TrainerCallback):
        def on_log(self, args, state, control, **kwargs): ...

    assert [event for event in EVENTS if listens(One(), event)] == ["on_log"]


def test_callbacks_may_ask_for_a_log_an_evaluation_and_a_checkpoint(tmp_path):
    class Asks(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_log = control.should_evaluate = control.should_save = state.global_step == 2

    trainer = make(tmp_path, [Asks], logging_strategy="no")
    trainer.train()
    keys = [key for entry in trainer.state.log_history for key in entry if entry["step"] == 2]
    assert "loss" in keys and "eval_loss" in keys
    assert (tmp_path / "checkpoint-2").is_dir()


def test_adding_and_removing(tmp_path):
    trainer = make(tmp_path)
    trainer.add_callback(EarlyStoppingCallback)
    early = trainer.pop_callback(EarlyStoppingCallback)
    assert isinstance(early, EarlyStoppingCallback)
    assert trainer.pop_callback(EarlyStoppingCallback) is None
    trainer.add_callback(early)
    trainer.remove_callback(early)
    names = [type(callback) for callback in trainer.callback_handler.callbacks]
    assert names[0] is DefaultFlowCallback and names[-1] is PrinterCallback and EarlyStoppingCallback not in names


@pytest.mark.parametrize(
    ("patience", "scores", "stopped"), [(1, [0.5, 0.4, 0.9], 2), (2, [0.5, 0.4, 0.6, 0.5, 0.5], 5)]
)
def test_early_stopping_counts_evaluations_without_improvement(tmp_path, patience, scores, stopped):
    values = iter(scores + [0.0] * 9)
    trainer = Trainer(
        model=Regressor(), train_dataset=Rows(60), eval_dataset=Rows(8), callbacks=EarlyStoppingCallback(patience),
        compute_metrics=lambda p: {"score": next(values)},
        args=arguments(tmp_path, max_steps=10, eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1,
                       load_best_model_at_end=True, metric_for_best_model="score", greater_is_better=True),
    )  # fmt: skip
    trainer.train()
    assert trainer.state.global_step == stopped


def test_early_stopping_needs_evaluations(tmp_path):
    with pytest.raises(ArgumentError, match="metric_for_best_model"):
        make(tmp_path, EarlyStoppingCallback).train()


@pytest.mark.parametrize("patience", [0, -1])
def test_early_stopping_needs_patience(patience):
    with pytest.raises(ArgumentError, match="early_stopping_patience"):
        EarlyStoppingCallback(patience)


def test_printed_lines_without_a_bar(tmp_path, capfd):
    make(tmp_path, logging_steps=2).train()
    out, err = capfd.readouterr()
    assert out.count("learning_rate") == 2
    assert "step/s" not in err
