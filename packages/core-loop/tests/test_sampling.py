"""The order of rows: every row once, whatever the processes, batches and resume points; the same global order."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mudarrib.core_loop.errors import ArgumentError
from mudarrib.core_loop.sampling import ProcessBatches, ResumableSampler, length_grouped_order, order


def deal(n, batch, world, start=0, epoch=0, drop_last=False, seed=3):
    """Batches of each process from a row on, repeated rows left out."""
    result = []
    for rank in range(world):
        batches = ProcessBatches(ResumableSampler(range(n), seed), batch, drop_last, rank, world)
        batches.set_epoch(epoch, start)
        first = start // (batch * world)
        result.append([rows[: batches.own_rows(first + i)] for i, rows in enumerate(batches)])
    return result


@given(n=st.integers(1, 80), batch=st.integers(1, 9), world=st.integers(1, 5), epoch=st.integers(0, 3))
def test_every_row_once_at_any_world_size(n, batch, world, epoch):
    dealt = deal(n, batch, world, epoch=epoch)
    assert sorted(row for batches in dealt for rows in batches for row in rows) == list(range(n))
    assert len({len(batches) for batches in dealt}) == 1, "every process takes part in every round"


@given(n=st.integers(1, 80), per_step=st.sampled_from([4, 8, 12]), steps=st.integers(0, 9))
def test_the_same_rows_in_each_step_at_any_world_size(n, per_step, steps):
    def rounds(world):
        dealt = deal(n, per_step // world, world, start=min(steps * per_step, n // per_step * per_step))
        return [sorted(row for rows in step for row in rows) for step in zip(*dealt)]

    assert rounds(1) == rounds(2) == rounds(4)


@given(n=st.integers(1, 80), batch=st.integers(1, 9), world=st.integers(1, 4), done=st.integers(0, 20))
def test_a_resumed_epoch_goes_on_where_it_was(n, batch, world, done):
    whole = deal(n, batch, world)
    done = min(done, n // (batch * world))
    assert deal(n, batch, world, start=done * batch * world) == [batches[done:] for batches in whole]


@given(n=st.integers(1, 60), batch=st.integers(1, 9), world=st.integers(1, 4))
def test_drop_last_keeps_whole_rounds_only(n, batch, world):
    dealt = deal(n, batch, world, drop_last=True)
    assert all(len(rows) == batch for batches in dealt for rows in batches)
    assert len(dealt[0]) == n // (batch * world)


def test_the_order_is_that_of_a_generator_seeded_with_seed_plus_epoch():
    expected = torch.randperm(50, generator=torch.Generator().manual_seed(42 + 3))
    assert torch.equal(order(42, 3, 50), expected)


def test_an_empty_data_set_is_an_error():
    with pytest.raises(ArgumentError, match="n_examples"):
        order(0, 0, 0)


@given(
    lengths=st.lists(st.integers(1, 100), min_size=1, max_size=200), batch=st.integers(1, 8), epoch=st.integers(0, 2)
)
def test_length_grouped_order_is_a_permutation_with_the_longest_first(lengths, batch, epoch):
    lengths = np.asarray(lengths)
    grouped = length_grouped_order(lengths, batch, 1, epoch).numpy()
    assert sorted(grouped) == list(range(len(lengths)))
    assert lengths[grouped[0]] == lengths.max()


def test_length_grouped_batches_are_of_similar_length():
    lengths = np.random.default_rng(0).integers(1, 1000, 4000)
    spread = lambda rows: np.mean([np.ptp(lengths[rows[i : i + 8]]) for i in range(0, 4000, 8)])
    assert spread(length_grouped_order(lengths, 8, 0, 0).numpy()) < spread(order(0, 0, 4000).numpy()) / 10
