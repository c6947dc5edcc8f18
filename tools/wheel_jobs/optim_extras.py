"""Optimizers in a bare loop: optim-extras from its wheel, with torch alone."""

import torch

from mudarrib.optim_extras import memory, neftune

model = torch.nn.Sequential(torch.nn.Embedding(16, 8), torch.nn.Linear(8, 8))
with neftune(model[0], 5.0):
    model(torch.arange(4)[None])
assert memory(model, "galore_adamw", rank=2)
