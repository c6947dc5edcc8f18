"""NEFTune on a model of transformers with tied embeddings and a LoRA adapter, sharded by FSDP2 over two processes."""

import os
import socket
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import torch
torch.set_num_threads(1)
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import fully_shard
from transformers import GPT2Config, GPT2LMHeadModel
from mudarrib.optim_extras import neftune

ALPHA, WIDTH = 5.0, 16
dist.init_process_group("gloo")
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(
    vocab_size=32, n_positions=16, n_embd=WIDTH, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
))
assert model.lm_head.weight is model.transformer.wte.weight
if sys.argv[1] == "peft":
    model = get_peft_model(model, LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
mesh = torch.distributed.init_device_mesh("cpu", (2,))
for block in (model.base_model.model if sys.argv[1] == "peft" else model).transformer.h:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
model.train()
torch.manual_seed(dist.get_rank())
ids = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]])
mask = (ids != 0).long()
seen = []


def logits():
    hook = model.get_input_embeddings().register_forward_hook(lambda module, args, output: seen.append(output.detach()))
    try:
        return model(input_ids=ids, attention_mask=mask).logits
    finally:
        hook.remove()


before, keys = logits(), list(model.state_dict())
with neftune(model, ALPHA):
    noisy = logits()
    assert list(model.state_dict()) == keys
    model.eval()
    assert torch.equal(logits(), before), "no noise in evaluation"
    model.train()
noise = seen[1] - seen[0]
for row, length in enumerate((4, 2)):
    bound = ALPHA / (length * WIDTH) ** 0.5
    assert 0.3 * bound < float(noise[row, :length].abs().max()) <= bound * 1.001
assert float(noise[1, 2:].abs().max()) == 0, "none on padding"
assert not torch.equal(noisy, before)
assert torch.equal(logits(), before), "and none afterwards"
both = [torch.zeros_like(noise) for _ in range(2)]
dist.all_gather(both, noise.contiguous())
assert not torch.equal(*both), "each process has its own rows, so its own noise"
with neftune(model, ALPHA):
    logits().square().mean().backward()
assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
if sys.argv[1] == "tied":
    assert model.lm_head.weight is model.transformer.wte.weight, "sharded, and still tied"
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tied", "peft"])
def test_noise_on_a_sharded_model(kind):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = str(sock.getsockname()[1])
    processes = []
    for rank in range(2):
        ranked = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {**os.environ, **ranked, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", SCRIPT, kind]
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    outputs = [process.communicate(timeout=200)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)[-3000:]
