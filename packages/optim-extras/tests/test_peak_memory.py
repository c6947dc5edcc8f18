"""Peak memory of a step, from torch's record of allocations, against theory."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from mudarrib.optim_extras import FusedBackward, builders, memory

WIDTH, DEPTH, RANK = 256, 12, 8
MATRIX = 4 * WIDTH**2
ACTIVATIONS = 4 * WIDTH * (DEPTH + 2)


def stack():
    torch.manual_seed(0)
    net = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(DEPTH)))
    for layer in net:
        torch.nn.init.orthogonal_(layer.weight)  # so that gradients do not vanish over the depth
    return net


def peak(call):
    """Bytes: the greatest sum of what was allocated during the call and not yet freed."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        call()
    alive = most = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            alive += event.nbytes()
            most = max(most, alive)
    return most


def train(name, net, gap="4"):
    groups = [{"params": list(net.parameters())}]
    if name == "adamw":
        optimizer = torch.optim.AdamW(groups, fused=True)
    else:
        low_rank = {} if "lomo" in name else {"update_proj_gap": gap}
        low_rank |= {} if "lomo" in name or "mini" in name else {"rank": str(RANK)}
        optimizer = getattr(builders, name)(net, groups, lr=1e-4, target_modules="all-linear", options=low_rank)

    def steps():
        for _ in range(6):
            if isinstance(optimizer, FusedBackward):
                optimizer.begin_micro_batch(True)
            net(torch.ones(1, WIDTH)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    return steps


# Whole matrices that an update needs beside the gradient for a while: AdaLomo's and APOLLO's update itself.
WORK = {
    "lomo": 0,
    "adalomo": 1,
    "galore_adamw_layerwise": 0,
    "galore_adafactor_layerwise": 0,
    "galore_adamw_8bit_layerwise": 0,
    "apollo_adamw_layerwise": 1,
    "apollo_mini_layerwise": 1,
}


@pytest.fixture(scope="module")
def adamw():
    return peak(train("adamw", stack()))


def test_adamw_peaks_with_all_gradients_and_states(adamw):
    report = memory(stack(), "adamw")
    assert adamw == pytest.approx(report.gradients + report.states, rel=1e-3)
    assert report.gradients == DEPTH * MATRIX


@pytest.mark.parametrize("name", WORK)
def test_the_peak_is_below_adamws_by_what_theory_says(name, adamw):
    report = memory(stack(), name, rank=RANK)
    expected = report.states + report.gradients + ACTIVATIONS + WORK[name] * MATRIX
    found = peak(train(name, stack()))
    # A hundredth of AdamW's peak is less than half a gradient; strips of the rank's width lie within it.
    assert 0.01 * adamw < MATRIX / 2
    assert found == pytest.approx(expected, abs=0.01 * adamw)
    assert adamw - found == pytest.approx(memory(stack(), "adamw").total - report.weights - expected, rel=0.01)


@pytest.mark.parametrize("name", ["lomo", "adalomo"])
def test_the_peak_grows_by_states_alone_however_many_layers(name):
    short, long = stack(), torch.nn.Sequential(*stack(), *stack())
    grown = memory(long, name).states - memory(short, name).states + DEPTH * WIDTH * 4
    assert peak(train(name, long)) - peak(train(name, short)) == pytest.approx(grown, abs=2048)


@pytest.mark.parametrize("name", WORK)
def test_operations_of_a_step_are_linear_in_the_number_of_tensors(name):
    counts = []
    for copies in (1, 2, 3):
        net = torch.nn.Sequential(*(layer for _ in range(copies) for layer in stack()))
        steps = train(name, net, gap="1000")
        steps()  # finds the subspaces
        with profile(activities=[ProfilerActivity.CPU]) as record:
            steps()
        counts.append(len(record.profiler.kineto_results.events()))
    assert counts[2] - counts[1] == pytest.approx(counts[1] - counts[0], rel=0.01)
