"""Used in a loop of one's own, and wrongly: every optimizer does the right thing, or says what to give instead."""

import copy
import logging
import pickle

import pytest
import torch
from loops_kit import IN_BACKWARD, NAMES, build, furthest, model, take_step, train

from mudarrib.optim_extras import (
    AdaLomo,
    ApolloAdamW,
    FusedBackward,
    FusedLomo,
    GaLoreAdafactor,
    GaLoreAdamW,
    Lomo,
    MuonWithAdamW,
    OptionError,
    builders,
    for_hf_trainer,
    match_modules,
    neftune,
)

LOW_RANK = [name for name in NAMES if "galore" in name or "apollo" in name]
TARGETED = [*LOW_RANK, "muon"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_a_copy_trains_on_as_the_original_does(name, duplicate):
    net, optimizer = train(name, steps=2)
    again, other = duplicate((net, optimizer))
    train(name, net=net, optimizer=optimizer, first=2)
    train(name, net=again, optimizer=other, first=2)
    assert furthest(net, again) == 0
    assert furthest(net, train(name, steps=2)[0]) > 0


@pytest.mark.parametrize("name", NAMES)
def test_zeroed_gradients_do_as_well_as_none(name, monkeypatch):
    expected, _ = train(name)
    net = model()
    optimizer = build(name, net)
    zero = optimizer.zero_grad
    monkeypatch.setattr(optimizer, "zero_grad", lambda: zero(set_to_none=False))
    train(name, net=net, optimizer=optimizer)
    assert furthest(expected, net) == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_rate_set_by_hand_is_used(name):
    net, optimizer = train(name, steps=1)
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(0.0)
    before = copy.deepcopy(net)
    take_step(net, optimizer, 1)
    assert furthest(before, net) == 0


@pytest.mark.parametrize("name", NAMES)
def test_frozen_parameters_stay_and_train_once_thawed(name):
    net = model()
    net[0].requires_grad_(False)
    optimizer = build(name, net)
    take_step(net, optimizer, 0)
    before = copy.deepcopy(net)
    assert torch.equal(net[0].weight, model()[0].weight)
    net[0].requires_grad_(True)
    take_step(net, optimizer, 1)
    assert not torch.equal(net[0].weight, before[0].weight)


@pytest.mark.parametrize("name", NAMES)
def test_a_group_added_later_is_trained(name):
    net = model()
    optimizer = builders.BY_NAME[name](net, [{"params": [net[3].weight]}], lr=1e-2, target_modules="all-linear")
    given = {"rank": 2} if name in LOW_RANK else {}
    optimizer.add_param_group({"params": [net[0].weight], **given})
    for step in range(3):
        before = net[0].weight.detach().clone()
        take_step(net, optimizer, step)
        assert not torch.equal(net[0].weight, before)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_alone_and_empty_groups_do(name):
    expected, _ = train(name, optimizer=None)
    for give in (lambda net: net.parameters(), lambda net: [{"params": []}, {"params": net.parameters()}]):
        net = model()
        options = {"rank": "4", "update_proj_gap": "3", "scale": "1.0"} if name in LOW_RANK else {}
        optimizer = builders.BY_NAME[name](
            net, give(net), lr=1e-2, weight_decay=0.01, target_modules="all-linear", options=options
        )
        train(name, net=net, optimizer=optimizer)
        assert furthest(expected, net) == 0


@pytest.mark.parametrize("name", LOW_RANK)
def test_a_rank_above_the_matrix_is_all_of_it(name):
    net = model()
    optimizer = build(name, net, rank="1000")
    losses = [take_step(net, optimizer, 0) for _ in range(20)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_sparse_gradient_is_refused(name):
    class Sparse(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embeddings, self.linear = torch.nn.Embedding(9, 4, sparse=True), torch.nn.Linear(4, 4)

        def forward(self, ids):
            return self.linear(self.embeddings(ids))

    net = Sparse()
    optimizer = builders.BY_NAME[name](net, net.parameters(), lr=0.1, target_modules="all-linear")
    with pytest.raises(OptionError, match=r"sparse, of shape \(9, 4\).*sparse=False"):
        if isinstance(optimizer, FusedBackward):
            optimizer.begin_micro_batch(True)
        net(torch.arange(3)).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("name", NAMES)
def test_parameters_without_memory_are_refused(name):
    with pytest.raises(OptionError, match="on the meta device"):
        build(name, model().to("meta"))


@pytest.mark.parametrize("name", IN_BACKWARD)
def test_a_step_that_was_not_announced_is_refused(name):
    net = model()
    optimizer = build(name, net)
    optimizer.step()  # nothing to do is no mistake
    net(torch.ones(2, 12)).sum().backward()
    with pytest.raises(OptionError, match=r"6 gradients that no update has used': call begin_micro_batch"):
        optimizer.step()


@pytest.mark.parametrize("name", TARGETED)
def test_targets_that_cannot_be_are_told(name):
    net = model()
    make = builders.BY_NAME[name]
    with pytest.raises(OptionError, match="no linear layer of that name; there are"):
        make(net, net.parameters(), lr=0.1, target_modules=["nope"])
    with pytest.raises(OptionError, match="without the weights of 0, 3': give the parameters of the very Sequential"):
        make(model(), net.parameters(), lr=0.1, target_modules="all-linear")
    with pytest.raises(OptionError, match="are frozen; requires_grad_"):
        make(net.requires_grad_(False), net.parameters(), lr=0.1, target_modules="all-linear")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "0.1", None])
@pytest.mark.parametrize("setting", ["lr", "weight_decay"])
def test_rates_and_decays_that_cannot_work_are_refused(name, setting, value):
    net = model()
    given = {"lr": 0.1, setting: value}
    with pytest.raises(OptionError, match=f"{setting} = .*: give a (number of 0 or more|learning rate)"):
        builders.BY_NAME[name](net, net.parameters(), target_modules="all-linear", **given)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_group_and_no_option_is_refused(name):
    net = model()
    make = builders.BY_NAME[name]
    with pytest.raises(OptionError, match="param_groups = 'tuple': give groups"):
        make(net, net.named_parameters(), lr=0.1, target_modules="all-linear")
    with pytest.raises(OptionError, match="options = 'rank=4': give pairs"):
        make(net, net.parameters(), lr=0.1, target_modules="all-linear", options="rank=4")


@pytest.mark.parametrize(
    ("build_one", "group", "said"),
    [
        (GaLoreAdamW, {"rank": -1}, "rank = -1: give a whole number"),
        (GaLoreAdamW, {"rank": "4"}, "rank = '4': give a whole number"),
        (ApolloAdamW, {"rank": 1.5}, "rank = 1.5: give a whole number"),
        (GaLoreAdamW, {"rank": 2, "svd": "fast"}, "svd = 'fast': give one of warm, full"),
        (GaLoreAdamW, {"rank": 2, "proj_type": "up"}, "proj_type = 'up': give one of std"),
        (ApolloAdamW, {"rank": 2, "update_proj_gap": 0}, "update_proj_gap = 0: give a whole number of at least 1"),
        (ApolloAdamW, {"rank": 2, "scale": -1.0}, "scale = -1.0: give a number of 0 or more"),
        (ApolloAdamW, {"rank": 2, "scale_type": "row"}, "scale_type = 'row': give one of channel, tensor"),
        (ApolloAdamW, {"rank": 2, "proj_type": "full"}, "proj_type = 'full': APOLLO projects one side"),
        (GaLoreAdamW, {"rnk": 2}, "rnk = 2: a group has no such setting; did you mean 'rank'"),
        (GaLoreAdamW, {"betas": (1.0, 0.9)}, r"betas = \(1.0, 0.9\): give two numbers"),
        (GaLoreAdamW, {"betas": 0.9}, "betas = 0.9: give two numbers"),
        (GaLoreAdamW, {"eps": -1e-8}, "eps = -1e-08: give"),
        (AdaLomo, {"decay_rate": 0.8}, "decay_rate = 0.8: give a number below 0"),
        (AdaLomo, {"clip_threshold": 0.0}, "clip_threshold = 0.0: give a number above 0"),
        (FusedLomo, {"clip_grad_value": -1.0}, "clip_grad_value = -1.0: give a number above 0"),
        (Lomo, {"lr": -1.0}, "lr = -1.0"),
        (MuonWithAdamW, {"weight_decay": -1.0}, "weight_decay = -1.0"),
    ],
)
def test_groups_given_to_a_class_are_checked_at_any_time(build_one, group, said):
    weight = torch.nn.Parameter(torch.ones(4, 3))
    with pytest.raises(OptionError, match=said):
        build_one([{"params": [weight], **group}])
    optimizer = build_one([torch.nn.Parameter(torch.ones(2, 2))])
    with pytest.raises(OptionError, match=said):
        optimizer.add_param_group({"params": [weight], **group})
    assert len(optimizer.param_groups) == 1


def test_low_rank_is_for_matrices():
    with pytest.raises(OptionError, match=r"rank = 2: a parameter of shape \(4,\) is no matrix"):
        GaLoreAdamW([{"params": [torch.nn.Parameter(torch.ones(4))], "rank": 2}])


@pytest.mark.parametrize("settings", [{"lr": 0.1}, {"relative_step": False}])
def test_adafactor_has_a_rate_or_makes_one(settings):
    with pytest.raises(OptionError, match="relative_step"):
        GaLoreAdafactor([torch.nn.Parameter(torch.ones(3))], **settings)


def test_a_wrong_type_of_state_is_refused():
    with pytest.raises(OptionError, match="state_dtype = 'half'"):
        GaLoreAdamW([torch.nn.Parameter(torch.ones(3))], state_dtype="half")


@pytest.mark.parametrize("name", LOW_RANK)
def test_a_state_of_another_rank_brings_its_rank_and_says_so(name, caplog):
    whole, _ = train(name)
    net, optimizer = train(name, steps=2)
    other = build(name, net, rank="2")
    with caplog.at_level(logging.WARNING):
        other.load_state_dict(optimizer.state_dict())
    assert "rank = 4, as in the loaded state; the 2 given is not used" in caplog.text
    if isinstance(optimizer, FusedBackward):
        optimizer.detach()
    train(name, net=net, optimizer=other, first=2)
    assert furthest(whole, net) == 0


@pytest.mark.parametrize("name", [name for name in NAMES if name != "lomo"])
def test_a_state_of_another_model_is_refused_and_changes_nothing(name):
    _, optimizer = train(name, steps=2)
    wider = torch.nn.Sequential(
        torch.nn.Linear(12, 24), torch.nn.Tanh(), torch.nn.LayerNorm(24), torch.nn.Linear(24, 6)
    )
    other = build(name, wider)
    with pytest.raises(OptionError, match=r"of shape \(20,\)': this parameter needs \(24,\)"):
        other.load_state_dict(optimizer.state_dict())
    assert not other.state


@pytest.mark.parametrize("name", NAMES)
def test_a_state_of_another_optimizer_is_refused(name):
    net = model()
    other = torch.optim.SGD([{"params": group["params"]} for group in build(name, net).param_groups])
    mine = build(name, model())
    with pytest.raises(OptionError, match=f"a group without .*: load one that {type(mine).__name__} has saved"):
        mine.load_state_dict(other.state_dict())


def test_a_state_of_a_sibling_is_refused():
    _, optimizer = train("adalomo", steps=1)
    with pytest.raises(OptionError, match="FusedLomo has no such state"):
        build("lomo", model()).load_state_dict(optimizer.state_dict())


def test_the_peers_trainer_gets_known_names_that_fit_its_loop():
    with pytest.raises(OptionError, match="did you mean 'galore_adamw'"):
        for_hf_trainer("galore_adam", lr=0.1)
    assert set(builders.BY_NAME) == set(NAMES)
    for name in NAMES:
        targets = "all-linear" if name in TARGETED else None
        factory, settings = for_hf_trainer(name, lr=0.1, target_modules=targets)
        if name not in IN_BACKWARD:
            factory()(model(), **settings)
            continue
        with pytest.raises(OptionError, match="clip"):
            factory()(model(), **settings)
        factory, settings = for_hf_trainer(name, lr=0.1, target_modules=targets, options={"clip": "global"})
        assert not isinstance(factory()(model(), **settings), FusedBackward)


@pytest.mark.parametrize("spec", [True, 3])
def test_targets_of_another_type_are_refused(spec):
    with pytest.raises(OptionError, match="give texts"):
        match_modules(model(), spec)


@pytest.mark.parametrize("alpha", [float("nan"), float("inf"), "5"])
def test_noise_that_is_no_number_is_refused(alpha):
    with pytest.raises(OptionError, match="give 0 or more"), neftune(model(), alpha):
        pass
