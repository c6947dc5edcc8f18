"""TrainingPlan: counts for any combination, every batch once."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudarrib.core_loop.errors import ArgumentError
from mudarrib.core_loop.plan import Position, TrainingPlan


def args(accumulation=1, max_steps=-1, epochs=1.0):
    return SimpleNamespace(gradient_accumulation_steps=accumulation, max_steps=max_steps, num_train_epochs=epochs)


@given(batches=st.integers(1, 60), accumulation=st.integers(1, 9), start=st.integers(0, 60))
def test_windows_hold_every_batch_once_from_any_boundary(batches, accumulation, start):
    plan = TrainingPlan.of(args(accumulation), batches, batches * 4, 4)
    start = min(start // accumulation * accumulation, batches)
    windows = list(plan.windows(iter(range(start, batches)), start))
    assert [batch for window in windows for batch in window] == list(range(start, batches))
    assert all(len(window) == accumulation for window in windows[:-1])
    assert len(list(plan.windows(iter(range(batches))))) == plan.steps_per_epoch


@given(batches=st.integers(1, 60), accumulation=st.integers(1, 9), epochs=st.floats(0.1, 5))
def test_epochs_cover_the_steps(batches, accumulation, epochs):
    plan = TrainingPlan.of(args(accumulation, epochs=epochs), batches, batches * 4, 4)
    assert plan.max_steps >= epochs * plan.steps_per_epoch
    assert (plan.num_epochs - 1) * plan.steps_per_epoch < plan.max_steps <= plan.num_epochs * plan.steps_per_epoch


def test_max_steps_wins_over_epochs():
    plan = TrainingPlan.of(args(2, max_steps=7, epochs=99), 5, 20, 4)
    assert (plan.steps_per_epoch, plan.max_steps, plan.num_epochs) == (3, 7, 3)


def test_one_and_a_half_epochs():
    plan = TrainingPlan.of(args(epochs=1.5), 5, 20, 4)
    assert (plan.max_steps, plan.num_epochs) == (8, 2)


def test_data_without_length_needs_max_steps():
    with pytest.raises(ArgumentError, match="max_steps"):
        TrainingPlan.of(args(), None, None, 4)
    assert TrainingPlan.of(args(max_steps=9), None, None, 4).steps_per_epoch == 9


def test_no_whole_batch_is_an_error():
    with pytest.raises(ArgumentError, match="train_dataset"):
        TrainingPlan.of(args(), 0, 3, 4)


def test_windows_of_data_without_length_end_with_what_is_left():
    plan = TrainingPlan.of(args(3, max_steps=9), None, None, 4)
    assert list(plan.windows(iter(range(7)))) == [[0, 1, 2], [3, 4, 5], [6]]


def test_nothing_is_left_of_a_run_that_is_done():
    plan = TrainingPlan.of(args(), 5, 20, 4)
    assert list(plan.epochs_left(Position(1), plan.max_steps)) == []
    assert list(plan.epochs_left(Position(0), 3)) == [0]
