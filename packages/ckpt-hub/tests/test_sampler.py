"""The order of examples, resumed at any place and on any number of ranks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from mudarrib.ckpt_hub import CheckpointError, CheckpointStore, ResumableBatches


def run(sampler, batches):
    """The examples of the next batches, epoch after epoch."""
    seen = []
    while len(seen) < batches:
        for batch in sampler:
            seen.append(batch)
            sampler.advance()
            if len(seen) == batches:
                break
    return seen


@given(n=st.integers(1, 40), size=st.integers(1, 7), stop=st.integers(0, 30), drop=st.booleans(), shuffle=st.booleans())
def test_continues_at_any_place(n, size, stop, drop, shuffle):
    def make():
        return ResumableBatches(n, min(size, n), seed=3, drop_last=drop, shuffle=shuffle)

    whole = run(make(), stop + 10)
    first = make()
    assert run(first, stop) == whole[:stop]
    second = make()
    second.load_state_dict(first.state_dict())
    assert run(second, 10) == whole[stop:]


def test_each_epoch_has_every_example_in_an_order_of_its_own():
    sampler = ResumableBatches(20, 4)
    epochs = [sum(run(sampler, 5), []) for _ in range(3)]
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs) and len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize(("ranks", "size"), [(1, 8), (2, 4), (4, 2), (8, 1)])
def test_other_ranks_and_batch_sizes_see_the_same_sequence(ranks, size):
    start = ResumableBatches(64, 4, rank=0, world_size=2)
    start.advance(3)
    samplers = [ResumableBatches(64, size, rank=rank, world_size=ranks) for rank in range(ranks)]
    for sampler in samplers:
        sampler.load_state_dict(start.state_dict())
    batches = [sum(parts, []) for parts in zip(*(run(sampler, 10) for sampler in samplers))]
    alone = ResumableBatches(64, 8)
    assert batches == run(alone, 13)[3:]


def test_ranks_have_equally_many_and_nothing_is_left_out():
    samplers = [ResumableBatches(10, 2, rank=rank, world_size=3) for rank in range(3)]
    batches = [list(sampler) for sampler in samplers]
    assert [[len(batch) for batch in rank] for rank in batches] == [[2, 2]] * 3
    assert set(sum(sum(batches, []), [])) == set(range(10))


def test_workers_that_run_ahead_do_not_move_the_position(tmp_path):
    data = list(range(100))
    sampler = ResumableBatches(100, 5)
    loader = iter(DataLoader(data, batch_sampler=sampler, num_workers=2, prefetch_factor=4))
    for _ in range(3):
        next(loader)
        sampler.advance()
    CheckpointStore(tmp_path).save(3, {"data": sampler})
    expected = next(loader)
    again = ResumableBatches(100, 5)
    CheckpointStore(tmp_path).load({"data": again})
    assert torch.equal(next(iter(DataLoader(data, batch_sampler=again))), expected)


@pytest.mark.parametrize(("other", "names"), [({"seed": 1}, "seed: 1"), ({"n_examples": 9}, "n_examples: 9")])
def test_other_data_is_refused(other, names):
    state = ResumableBatches(10, 2).state_dict()
    with pytest.raises(CheckpointError, match=names):
        ResumableBatches(**({"n_examples": 10, "batch_size": 2} | other)).load_state_dict(state)


def test_bad_sizes():
    with pytest.raises(CheckpointError, match="batch_size: 0"):
        ResumableBatches(3, 0)
