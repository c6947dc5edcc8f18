"""Optimizers by name, their groups and options, and the fused AdamW that is called directly."""

import copy
import subprocess
import sys

import pytest
import torch
from tiny import Regressor, Rows, arguments, bert, same, weights

from mudarrib.core_loop import ArgumentError, Trainer
from mudarrib.core_loop.adamw import FusedAdamW
from mudarrib.core_loop.optimizers import decay_groups, decay_parameter_names, parse_options


def three_layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 3))


def trained(model, optimizer, steps=5, hole=None):
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 5, generator=generator)).pow(2).mean().backward()
        if step == hole:
            model[0].bias.grad = None
        optimizer.step()
    return weights(model)


@pytest.mark.parametrize("hole", [None, 0, 2])
def test_the_direct_call_equals_torchs_own_bit_for_bit(hole):
    settings = {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-7, "weight_decay": 0.1}
    expected_model, model = three_layers(), three_layers()
    expected = torch.optim.AdamW(decay_groups(expected_model, ["0.weight"], 0.1), **settings, fused=True)
    own = FusedAdamW(decay_groups(model, ["0.weight"], 0.1), **settings)
    assert same(trained(expected_model, expected, hole=hole), trained(model, own, hole=hole))
    theirs, ours = expected.state_dict(), own.state_dict()
    assert theirs["param_groups"] == ours["param_groups"]
    for key, state in theirs["state"].items():
        assert all(torch.equal(state[name], ours["state"][key][name]) for name in state)


def test_its_state_moves_to_and_from_torchs_own():
    whole = trained(three_layers_ := three_layers(), FusedAdamW(three_layers_.parameters(), lr=0.01), steps=3)
    assert whole
    model = three_layers()
    own = FusedAdamW(model.parameters(), lr=0.01)
    trained(model, own)
    other = copy.deepcopy(model)
    expected = torch.optim.AdamW(other.parameters(), lr=0.01, fused=True)
    expected.load_state_dict(own.state_dict())
    again = FusedAdamW(model.parameters(), lr=0.01)
    again.load_state_dict(copy.deepcopy(expected.state_dict()))
    assert same(trained(other, expected), trained(model, again))


def test_hooks_and_closures_are_called():
    model = three_layers()
    optimizer = FusedAdamW(model.parameters(), lr=0.01)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))

    def closure():
        calls.append("closure")
        loss = model(torch.ones(1, 5)).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) is not None
    assert calls == ["before", "closure", "after"]


def test_the_first_step_does_not_import_torchs_compiler(tmp_path):
    code = f"""
import sys; sys.path.insert(0, {str(__file__.rsplit("/", 1)[0])!r})
import torch
from mudarrib.core_loop.adamw import FusedAdamW
from mudarrib.core_loop.schedules import create
model = torch.nn.Linear(3, 2)
optimizer = FusedAdamW(model.parameters(), lr=0.1)
schedule = create("linear", optimizer, 2, 10)
model(torch.ones(1, 3)).sum().backward()
optimizer.step(); schedule.step()
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_decay_leaves_biases_and_norms_out():
    assert decay_parameter_names(three_layers()) == ["0.weight", "2.weight"]
    names = decay_parameter_names(bert())
    assert "bert.embeddings.word_embeddings.weight" in names
    assert not [name for name in names if "bias" in name or "LayerNorm" in name]


def test_frozen_parameters_are_in_no_group(tmp_path):
    model = three_layers()
    model[0].requires_grad_(False)
    groups = decay_groups(model, decay_parameter_names(model), 0.1)
    assert [len(group["params"]) for group in groups] == [1, 3]


@pytest.mark.parametrize(
    ("optim", "options", "cls", "setting", "value"),
    [
        ("adamw_torch", None, torch.optim.AdamW, "eps", 1e-8),
        ("adamw_torch_fused", None, FusedAdamW, "betas", (0.9, 0.999)),
        ("sgd", "momentum=0.9, nesterov=true", torch.optim.SGD, "nesterov", True),
        ("rmsprop", "alpha=0.5", torch.optim.RMSprop, "alpha", 0.5),
        ("adagrad", "lr_decay=0.1", torch.optim.Adagrad, "lr_decay", 0.1),
    ],
)
def test_names_and_options(tmp_path, optim, options, cls, setting, value):
    args = arguments(tmp_path, optim=optim, optim_args=options)
    trainer = Trainer(model=Regressor(), args=args, train_dataset=Rows())
    optimizer = trainer.create_optimizer()
    assert type(optimizer) is cls and optimizer.param_groups[0][setting] == value


def test_an_unknown_name_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(ArgumentError, match="did you mean 'adamw_torch'"):
        Trainer(model=Regressor(), args=arguments(tmp_path, optim="adamw_torh"), train_dataset=Rows())


@pytest.mark.parametrize("options", ["momentum", "momentum=a lot", "momentun=0.9", "=3"])
def test_bad_options_are_refused(tmp_path, options):
    trainer = Trainer(
        model=Regressor(), args=arguments(tmp_path, optim="sgd", optim_args=options), train_dataset=Rows()
    )
    with pytest.raises(ArgumentError, match="optim_args"):
        trainer.train()


def test_options_as_text():
    assert parse_options("rank=64, update_proj_gap=100, scale=0.10") == {
        "rank": "64", "update_proj_gap": "100", "scale": "0.10",
    }  # fmt: skip
    assert parse_options(None) == {}


def test_a_library_that_is_missing_is_named(tmp_path):
    trainer = Trainer(model=Regressor(), args=arguments(tmp_path, optim="lion_8bit"), train_dataset=Rows())
    with pytest.raises(ArgumentError, match="bitsandbytes"):
        trainer.train()


def test_optimizers_of_the_user(tmp_path):
    model = Regressor()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    trainer = Trainer(model=model, args=arguments(tmp_path), train_dataset=Rows(), optimizers=(optimizer, schedule))
    trainer.train()
    assert trainer.optimizer is optimizer and optimizer.param_groups[0]["lr"] == pytest.approx(0.025)


def test_a_class_and_its_settings(tmp_path):
    trainer = Trainer(model=Regressor(), args=arguments(tmp_path), train_dataset=Rows(),
                      optimizer_cls_and_kwargs=(torch.optim.SGD, {"lr": 0.3, "momentum": 0.7}))  # fmt: skip
    trainer.train()
    assert trainer.optimizer.param_groups[0]["momentum"] == 0.7


def test_a_schedule_that_follows_the_metric(tmp_path):
    values = iter([0.5, 0.5, 0.5, 0.5])
    args = arguments(tmp_path, max_steps=4, eval_strategy="steps", eval_steps=1, lr_scheduler_type="reduce_lr_on_plateau",
                     lr_scheduler_kwargs={"patience": 1, "factor": 0.1}, metric_for_best_model="score", logging_steps=1)  # fmt: skip
    trainer = Trainer(model=Regressor(), args=args, train_dataset=Rows(), eval_dataset=Rows(4),
                      compute_metrics=lambda p: {"score": next(values)})  # fmt: skip
    trainer.train()
    rates = [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]
    assert rates == pytest.approx([0.01, 0.01, 0.01, 0.001])


def test_the_logged_rate_is_the_one_that_was_used(tmp_path):
    used = []

    class Look(Trainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            used.append(self.optimizer.param_groups[0]["lr"])
            return super().training_step(model, inputs, num_items_in_batch)

    trainer = Look(model=Regressor(), args=arguments(tmp_path, warmup_steps=2, logging_steps=1), train_dataset=Rows())
    trainer.train()
    assert [entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry] == used
    assert used[0] == 0
