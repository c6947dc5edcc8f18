"""The warm subspace: how much it holds, when it is found anew, and what does not move it."""

import math

import pytest
import torch

from mudarrib.optim_extras import GaLoreAdamW, builders
from mudarrib.optim_extras.galore import optimizer, subspace

RANK = 16


def gradients(decay, drift, count, shape=(96, 64), seed=0):
    """Gradients whose singular values fall like a power law and whose vectors turn from one to the next."""
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(side, 64, generator=generator) for side in shape)
    falling = torch.arange(1, 65).pow(-decay)
    for _ in range(count):
        left = left + drift * torch.randn(left.shape, generator=generator)
        right = right + drift * torch.randn(right.shape, generator=generator)
        yield (left * falling) @ right.T


def ratio(gradient, basis, right=True):
    squares = torch.linalg.svdvals(gradient).square()
    best = float(squares[:RANK].sum() / squares.sum())
    return subspace.captured_energy(gradient, basis, right) / best


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("decay", [0.5, 1.0, 2.0])
def test_the_warm_basis_holds_nearly_what_the_best_one_does(decay, right):
    drawn = list(gradients(decay, 0.2, 6))
    basis = subspace.first(drawn[0], RANK, right)
    stale = basis
    for gradient in drawn[1:]:
        basis = subspace.warm(gradient, basis, right)
        # A flat spectrum has no clear best subspace, and is the hardest.
        assert ratio(gradient, basis, right) > (0.99 if decay < 1 else 0.999)
        torch.testing.assert_close(basis.T @ basis, torch.eye(RANK), atol=1e-5, rtol=0)
    assert ratio(drawn[-1], stale, right) < ratio(drawn[-1], basis, right)


def test_a_known_product_gives_the_same_basis():
    before, after = gradients(1.0, 0.2, 2)
    old = subspace.first(before, RANK, True)
    new = subspace.warm(after, old, True)
    torch.testing.assert_close(subspace.warm(after, old, True, after @ old), new, atol=1e-6, rtol=1e-5)


def test_a_second_iteration_is_made_only_where_it_gains(monkeypatch):
    made = []
    oriented = subspace.oriented
    monkeypatch.setattr(subspace, "oriented", lambda matrix: made.append(1) or oriented(matrix))
    counts = {}
    for decay in (0.5, 2.0):
        before, after = gradients(decay, 0.1, 2)
        old = subspace.exact(before, RANK, True)
        made.clear()
        subspace.warm(after, old, True)
        counts[decay] = len(made)
    assert counts[2.0] == 1 < counts[0.5] <= subspace.ITERATIONS


def test_further_iterations_gain_more_than_plain_ones(monkeypatch):
    made = []
    oriented = subspace.oriented
    monkeypatch.setattr(subspace, "oriented", lambda matrix: made.append(1) or oriented(matrix))
    lost = {"ours": 0.0, "plain": 0.0}
    for seed in range(5):
        before, after = gradients(0.5, 0.5, 2, seed=seed)
        plain = old = subspace.exact(before, RANK, True)
        made.clear()
        lost["ours"] += 1 - ratio(after, subspace.warm(after, old, True))
        assert len(made) > 1
        for _ in list(made):
            plain = oriented(after.T @ (after @ plain))
        lost["plain"] += 1 - ratio(after, plain)
    assert lost["ours"] < 0.75 * lost["plain"]


@pytest.mark.parametrize("broken", [0.0, float("nan"), float("inf")])
def test_a_vanished_or_broken_gradient_moves_nothing(broken):
    (gradient,) = gradients(1.0, 0.0, 1)
    basis = subspace.first(gradient, RANK, True)
    assert torch.equal(subspace.warm(gradient * broken, basis, True), basis)
    assert bool(torch.isfinite(subspace.first(gradient * broken, RANK, True)).all())


def test_a_tiny_gradient_moves_it_as_a_large_one_does():
    before, after = gradients(1.0, 0.2, 2)
    basis = subspace.first(before, RANK, True)
    expected = subspace.warm(after, basis, True)
    torch.testing.assert_close(subspace.warm(after * 1e-12, basis, True), expected, atol=1e-4, rtol=1e-4)


def test_the_new_subspace_serves_from_the_next_step_on():
    start, *later = gradients(1.0, 0.5, 3)
    weight = torch.nn.Parameter(torch.zeros_like(start))
    optimizer = GaLoreAdamW([{"params": [weight], "rank": RANK, "update_proj_gap": 2}], lr=1.0)
    spans = []
    for gradient in (start, *later):
        before = weight.detach().clone()
        weight.grad = gradient
        old = optimizer.state[weight].get("basis_right")
        optimizer.step()
        new = optimizer.state[weight]["basis_right"]
        spans.append((weight.detach() - before, old, new))
    update, old, new = spans[2]
    assert not torch.equal(old, new)
    torch.testing.assert_close(update @ old @ old.T, update, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("layers", "gap"), [(6, 12), (12, 5), (7, 3)])
def test_refreshes_are_spread_over_the_steps(layers, gap):
    torch.manual_seed(0)
    net = torch.nn.Sequential(*(torch.nn.Linear(8, 8, bias=False) for _ in range(layers)))
    options = {"rank": "2", "update_proj_gap": str(gap)}
    optimizer = builders.galore_adamw(
        net, [{"params": list(net.parameters())}], lr=0.0, target_modules="all-linear", options=options
    )
    found = []
    for _ in range(3 * gap):
        bases = [optimizer.state[layer.weight].get("basis_right") for layer in net]
        net(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(sum(optimizer.state[layer.weight]["basis_right"] is not old for layer, old in zip(net, bases)))
    assert found[0] == layers
    assert max(found[1:]) <= math.ceil(layers / gap)
    assert sum(found[gap : 2 * gap]) == layers


def test_long_decompositions_say_how_far_they_are(caplog, monkeypatch):
    monkeypatch.setattr(optimizer, "QUIET_S", 0.0)
    weights = [torch.nn.Parameter(torch.randn(64, 48)) for _ in range(3)]
    trained = GaLoreAdamW([{"params": weights, "rank": 4, "svd": "full", "update_proj_gap": 2}])
    with caplog.at_level("INFO", "mudarrib.optim_extras"):
        for _ in range(2):
            for weight in weights:
                weight.grad = torch.randn_like(weight)
            trained.step()
    assert [record.getMessage() for record in caplog.records] == [
        f"Decomposing gradients: {done} of 3 matrices are done" for done in (1, 2)
    ]
