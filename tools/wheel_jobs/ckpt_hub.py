"""A bare loop that stops and goes on: ckpt-hub from its wheel, with torch alone."""

import torch

from mudarrib.ckpt_hub import CheckpointStore, RngState


def run(steps, folder, resume=False):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    parts = {"model": model, "optimizer": optimizer, "rng": RngState()}
    store = CheckpointStore(folder)
    begin = store.load(parts).step if resume else 0
    for step in range(begin, steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        store.save(step + 1, parts)
    store.wait()
    return model.weight.detach().clone()


whole = run(4, "whole")
run(2, "parted")
assert torch.equal(run(4, "parted", resume=True), whole)
