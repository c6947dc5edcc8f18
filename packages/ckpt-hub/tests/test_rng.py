"""Random generators continue where they were."""

import random

import numpy as np
import pytest
import torch

from mudarrib.ckpt_hub import CheckpointError, CheckpointStore, RngState


def draw():
    return [random.random(), random.gauss(0, 1), *np.random.rand(3), np.random.randn(), *torch.randn(5).tolist()]


def test_all_generators_continue(tmp_path):
    draw()
    CheckpointStore(tmp_path).save(1, {"rng": RngState()})
    expected = draw(), draw()
    for generator in (random.seed, np.random.seed, torch.manual_seed):
        generator(99)
    CheckpointStore(tmp_path).load({"rng": RngState()})
    assert (draw(), draw()) == expected


def test_a_rank_without_a_state_gets_one_of_its_own():
    state = RngState().state_dict()
    forks = [RngState().fork_state_dict(state, rank) for rank in (1, 2, 1)]
    drawn = []
    for fork in (state, *forks):
        RngState().load_state_dict(fork)
        drawn.append(tuple(draw()))
    assert drawn[1] == drawn[3] and len(set(drawn)) == 3


def test_damaged_state():
    with pytest.raises(CheckpointError, match="no random state"):
        RngState().load_state_dict({"python": (3, (1,), None)})
