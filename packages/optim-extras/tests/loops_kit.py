"""A small model, its data, and training by any optimizer of the package; what several tests need."""

import tomllib
from pathlib import Path

import torch

from mudarrib.optim_extras import FusedBackward, builders

PYPROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
NAMES = list(PYPROJECT["project"]["entry-points"]["mudarrib.optimizers"])
IN_BACKWARD = [name for name in NAMES if name.endswith("_layerwise") or "lomo" in name]


def model(dtype=torch.float32):
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Linear(12, 20), torch.nn.Tanh(), torch.nn.LayerNorm(20), torch.nn.Linear(20, 6)
    )
    return layers.to(dtype)


def build(name, net, **options):
    given = {} if "lomo" in name or name == "muon" else {"rank": "4", "update_proj_gap": "3", "scale": "1.0"}
    groups = [{"params": list(net.parameters()), "weight_decay": 0.01}]
    return getattr(builders, name)(net, groups, lr=1e-2, target_modules="all-linear", options={**given, **options})


def data(step, rows=8, dtype=torch.float32):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(rows, 12, generator=generator)
    return x.to(dtype), torch.sin(x[:, :6]).to(dtype)


def take_step(net, optimizer, step, parts=1, dtype=torch.float32):
    x, y = data(step, dtype=dtype)
    for number, (inputs, targets) in enumerate(zip(x.chunk(parts), y.chunk(parts))):
        if isinstance(optimizer, FusedBackward):
            optimizer.begin_micro_batch(number == parts - 1)
        loss = (net(inputs) - targets).square().mean() / parts
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


def train(name, steps=6, parts=1, net=None, optimizer=None, first=0, dtype=torch.float32):
    net = net if net is not None else model(dtype)
    optimizer = optimizer or build(name, net)
    for step in range(first, steps):
        take_step(net, optimizer, step, parts, dtype)
    return net, optimizer


def furthest(a, b):
    return max(float((p - q).abs().max().detach()) for p, q in zip(a.parameters(), b.parameters()))
