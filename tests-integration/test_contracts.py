"""What one package calls is what the other serves."""

import inspect
from importlib.metadata import entry_points

import pytest
import torch

from mudarrib.ckpt_hub import CheckpointStore
from mudarrib.core_loop import checkpointing
from mudarrib.core_loop.engine import StepsInBackward
from mudarrib.core_loop.optimizers import OptimizerBuilder

OPTIMIZERS = sorted(entry_points(group="mudarrib.optimizers"), key=lambda entry: entry.name)


@pytest.mark.parametrize("name", ["save", "load", "newest", "wait"])
def test_the_store_takes_what_the_loop_gives(name):
    asked = inspect.signature(getattr(checkpointing.Store, name)).parameters
    served = inspect.signature(getattr(CheckpointStore, name)).parameters
    assert set(asked) <= set(served)
    required = {n for n, p in served.items() if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
    assert required <= set(asked)


def test_every_optimizer_of_the_guide_is_registered():
    names = {entry.name for entry in OPTIMIZERS}
    galore = {f"galore_{kind}{end}" for kind in ("adamw", "adafactor", "adamw_8bit") for end in ("", "_layerwise")}
    assert galore | {"lomo", "adalomo"} <= names


@pytest.mark.parametrize("entry", OPTIMIZERS, ids=lambda entry: entry.name)
def test_a_builder_takes_what_the_loop_gives_and_makes_an_optimizer(entry):
    build = entry.load()
    asked = set(inspect.signature(OptimizerBuilder.__call__).parameters) - {"self"}
    assert asked <= set(inspect.signature(build).parameters)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))
    groups = [
        {"params": [model[0].weight], "weight_decay": 0.1},
        {"params": [model[0].bias, *model[1].parameters()], "weight_decay": 0.0},
    ]
    optimizer = build(
        model, groups, lr=1e-3, target_modules="all-linear", options={}, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1
    )
    assert isinstance(optimizer, torch.optim.Optimizer)
    in_backward = entry.name.endswith("_layerwise") or entry.name in ("lomo", "adalomo")
    assert isinstance(optimizer, StepsInBackward) == in_backward


def test_embedding_noise_is_registered():
    (entry,) = entry_points(group="mudarrib.embedding_noise")
    embedding = torch.nn.Embedding(5, 4)
    embedding.get_input_embeddings = lambda: embedding
    ids = torch.tensor([[1, 2]])
    with entry.load()(embedding, 5.0):
        assert not torch.equal(embedding(ids), embedding.weight[ids])
    assert torch.equal(embedding(ids), embedding.weight[ids])
