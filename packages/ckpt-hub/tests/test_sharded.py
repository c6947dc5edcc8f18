"""FSDP over two gloo processes: save, load on another number of ranks, and export in one file."""

import pytest
import torch
from ranks_kit import on_ranks
from safetensors.torch import load_file

from mudarrib.ckpt_hub import CheckpointStore, ShardedState, export_model

SHARD = """
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
from mudarrib.ckpt_hub import ShardedState
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))
fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
parts = {"sharded": ShardedState(model, optimizer), "rng": RngState()}
def step():
    torch.manual_seed(5)
    model(torch.randn(4, 5)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
def digest():
    print(*[round(v, 6) for p in model.parameters() for v in p.full_tensor().flatten().tolist()])
store = CheckpointStore(root)
"""


def whole():
    """The same model, unsharded, after three steps."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    return model, optimizer


def step(model, optimizer):
    torch.manual_seed(5)
    model(torch.randn(4, 5)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_shards_load_on_another_number_of_ranks_and_on_none(tmp_path):
    on_ranks(tmp_path, 2, SHARD + "step(); step(); store.save(2, parts)", "save")
    folder = tmp_path / "checkpoint-2"
    shards = [path.name for path in (folder / "sharded").iterdir()]
    assert len(shards) == 2 and all(name.endswith(".safetensors") for name in shards)
    assert (folder / "rng-0.json").exists() and (folder / "rng-1.json").exists()
    CheckpointStore(tmp_path).verify(folder)

    after = on_ranks(tmp_path, 2, SHARD + "assert store.load(parts).step == 2; step(); digest()", "same")
    other = on_ranks(tmp_path, 3, SHARD + "assert store.load(parts).step == 2; step(); digest()", "other")
    model, optimizer = whole()
    CheckpointStore(tmp_path).load({"sharded": ShardedState(model, optimizer)})
    exported = export_model(folder, tmp_path / "model.safetensors")
    assert exported.size == (tmp_path / "model.safetensors").stat().st_size
    weights = load_file(tmp_path / "model.safetensors")
    assert weights.keys() == model.state_dict().keys()
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    step(model, optimizer)
    alone = [value for parameter in model.parameters() for value in parameter.flatten().tolist()]
    for printed in (after[0], after[1], other[0]):
        assert [float(value) for value in printed] == pytest.approx(alone, abs=2e-6)

    fresh, fresh_optimizer = whole()
    for _ in range(3):
        step(fresh, fresh_optimizer)
    assert torch.allclose(fresh[0].weight, model[0].weight, atol=1e-6)
