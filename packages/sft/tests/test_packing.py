import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mudarrib.sft.packing import STRATEGIES, best_fit_decreasing, pack

LENGTHS = st.lists(st.integers(0, 40), max_size=60)
CAPACITY = st.integers(1, 30)


def best_fit_one_by_one(lengths, capacity):
    """Rows that best fit decreasing opens, done the slow and obvious way."""
    rooms = []
    for length in sorted(lengths, reverse=True):
        fitting = [room for room in rooms if room >= length]
        room = min(fitting) if fitting else capacity
        if fitting:
            rooms.remove(room)
        rooms.append(room - length)
    return len(rooms), sorted(rooms)


@settings(deadline=None, max_examples=300)
@given(LENGTHS, CAPACITY)
def test_opens_the_rows_that_best_fit_decreasing_opens(lengths, capacity):
    cut = [min(n, capacity) for n in lengths if n]
    plan = pack(lengths, capacity, "bfd")
    rooms = [capacity - int(plan.lengths[plan.pieces(row)].sum()) for row in range(len(plan))]
    assert (len(plan), sorted(rooms)) == best_fit_one_by_one(cut, capacity)


@settings(deadline=None)
@given(LENGTHS, CAPACITY, st.sampled_from(STRATEGIES))
def test_rows_hold_what_they_can_and_every_token_once(lengths, capacity, strategy):
    plan = pack(lengths, capacity, strategy)
    seen = []
    for row in range(len(plan)):
        pieces = plan.pieces(row)
        assert 1 <= plan.lengths[pieces].sum() <= capacity
        for example, start, length in zip(plan.examples[pieces], plan.starts[pieces], plan.lengths[pieces]):
            seen += [(example, start + i) for i in range(length)]
    limit = capacity if strategy == "bfd" else max(lengths, default=0)
    assert sorted(seen) == [(e, t) for e, n in enumerate(lengths) for t in range(min(n, limit))]


@settings(deadline=None)
@given(LENGTHS, CAPACITY)
def test_wrapped_keeps_the_order_and_fills_all_rows_but_the_last(lengths, capacity):
    plan = pack(lengths, capacity, "wrapped")
    assert plan.n_tokens == sum(lengths)
    assert all(plan.lengths[plan.pieces(row)].sum() == capacity for row in range(len(plan) - 1))
    assert plan.examples.tolist() == sorted(plan.examples.tolist())


@given(LENGTHS, CAPACITY, st.sampled_from(STRATEGIES))
def test_rows_come_in_the_order_of_their_first_example(lengths, capacity, strategy):
    plan = pack(lengths, capacity, strategy)
    firsts = plan.examples[plan.rows[:-1]].tolist()
    assert firsts == sorted(firsts)


def test_split_keeps_what_bfd_cuts_off():
    assert pack([10], 4, "bfd").n_tokens == 4
    plan = pack([10], 4, "bfd_split")
    assert sorted(zip(plan.starts.tolist(), plan.lengths.tolist())) == [(0, 4), (4, 4), (8, 2)]


def test_more_than_65536_rows_and_long_capacities():
    plan = pack(np.full(70_000, 70_000), 100_000, "bfd")
    assert len(plan) == 70_000 and plan.examples.tolist() == list(range(70_000))


def test_log_normal_lengths_are_packed_nearly_without_gaps():
    lengths = np.clip(np.random.default_rng(0).lognormal(5.2, 0.9, 50_000), 8, 2048).astype(int)
    assert pack(lengths, 2048).fill >= 0.999


def test_nothing_to_pack():
    for strategy in STRATEGIES:
        plan = pack([], 8, strategy)
        assert (len(plan), plan.n_tokens, plan.fill) == (0, 0, 0.0)
    assert best_fit_decreasing(np.zeros(0, dtype=np.int64), 8).tolist() == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(([1], 0), "max_length"), (([1], 4, "best"), "packing_strategy"), (([-1], 4), "lengths")],
)
def test_bad_arguments_are_named(arguments, named):
    with pytest.raises(ValueError, match=named):
        pack(*arguments)
