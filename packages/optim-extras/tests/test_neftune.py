"""Noise on embeddings: when it is there, how large, that it goes; tied weights; sharded and replicated models."""

import math
import os
import socket
import subprocess
import sys

import pytest
import torch

from mudarrib.optim_extras import OptionError, neftune

ALPHA = 5.0


class Tied(torch.nn.Module):
    """A language model whose output layer is its embedding."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embeddings = torch.nn.Embedding(16, 8)
        self.middle = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 16, bias=False)
        self.head.weight = self.embeddings.weight

    def get_input_embeddings(self):
        return self.embeddings

    def forward(self, ids, attention_mask=None):
        self.seen = self.embeddings(ids)
        return self.head(torch.tanh(self.middle(self.seen)))


def batch():
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]])
    return ids, (ids != 0).long()


def check(call, inner):
    """Noise within its bound on real tokens of each row, none on padding, none in evaluation or afterwards."""
    ids, mask = batch()
    clean = call(ids, attention_mask=mask)
    plain = inner.seen.detach().clone()
    keys = list(inner.state_dict())
    with neftune(inner, ALPHA):
        noisy = call(ids, attention_mask=mask)
        noise = (inner.seen - plain).detach()
        assert list(inner.state_dict()) == keys
        inner.eval()
        assert torch.equal(call(ids, attention_mask=mask), clean)
        inner.train()
    for row, length in enumerate((4, 2)):
        bound = ALPHA / math.sqrt(length * 8)
        assert 0.3 * bound < float(noise[row, :length].abs().max()) <= bound * 1.001
    assert torch.equal(noise[mask == 0], torch.zeros_like(noise[mask == 0]))
    assert not torch.equal(noisy, clean)
    assert torch.equal(call(ids, attention_mask=mask), clean)
    return noise


def test_a_tied_model():
    net = Tied()
    check(net, net)
    assert net.head.weight is net.embeddings.weight


def test_a_tied_weight_gets_the_gradient_of_both_ends():
    net = Tied()
    ids, mask = batch()
    with neftune(net, 0.0):
        net(ids, attention_mask=mask).sum().backward()
    without = Tied()
    without(ids).sum().backward()
    torch.testing.assert_close(net.embeddings.weight.grad, without.embeddings.weight.grad)


def test_it_goes_when_training_fails():
    net = Tied()
    ids, _ = batch()
    clean = net(ids)
    with pytest.raises(RuntimeError, match="on purpose"), neftune(net, ALPHA):
        raise RuntimeError("on purpose")
    assert torch.equal(net(ids), clean)


def test_without_a_mask_the_length_of_the_batch_counts():
    net = Tied()
    ids, _ = batch()
    net(ids)
    plain = net.seen
    with neftune(net, ALPHA):
        net(ids)
    bound = ALPHA / math.sqrt(4 * 8)
    assert 0.3 * bound < float((net.seen - plain).abs().max().detach()) <= bound * 1.001


def test_the_embedding_layer_itself_in_a_model_of_one_s_own():
    layer, ids = torch.nn.Embedding(16, 8), torch.arange(4)[None]
    net = torch.nn.Sequential(layer, torch.nn.Identity())
    clean = net(ids)
    with neftune(layer, ALPHA):
        off = float((net(ids) - clean).abs().max().detach())
    bound = ALPHA / math.sqrt(4 * 8)
    assert 0.3 * bound < off <= bound * 1.001
    assert torch.equal(net(ids), clean)


@pytest.mark.parametrize(
    ("model", "alpha", "said"), [(Tied, -1.0, "0 or more"), (torch.nn.Identity, 5.0, "has no get_input_embeddings")]
)
def test_what_cannot_work_is_refused(model, alpha, said):
    with pytest.raises(OptionError, match=said), neftune(model(), alpha):
        pass


TWO = """
import sys
sys.path.insert(0, {folder!r})
import torch
torch.set_num_threads(1)
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from test_neftune import Tied, batch, check
from mudarrib.optim_extras import neftune
dist.init_process_group("gloo")
kind, net = sys.argv[1], Tied()
if kind == "ddp":
    call = torch.nn.parallel.DistributedDataParallel(net)
else:
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    if kind == "fsdp by layer":
        fully_shard(net.middle, mesh=mesh)
    call = fully_shard(net, mesh=mesh)
torch.manual_seed(dist.get_rank())
noise = check(call, net)
both = [torch.zeros_like(noise) for _ in range(2)]
dist.all_gather(both, noise.contiguous())
assert not torch.equal(*both), "each process has its own rows, so its own noise"
with neftune(net, 5.0):
    call(*batch()).square().mean().backward()
assert all(parameter.grad is not None for parameter in net.parameters())
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp", "fsdp by layer"])
def test_on_two_processes(kind):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = str(sock.getsockname()[1])
    code = TWO.format(folder=os.path.dirname(__file__))
    processes = []
    for rank in range(2):
        ranked = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        processes.append(subprocess.Popen([sys.executable, "-c", code, kind], env={**os.environ, **ranked}))
    assert [process.wait(120) for process in processes] == [0, 0]
