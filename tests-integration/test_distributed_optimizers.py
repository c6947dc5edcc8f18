"""Optimizers that step inside backward, by name in the Trainer, on two processes as on one."""

import os
import socket
import subprocess
import sys

import pytest
import torch

SCRIPT = """
import sys
import torch
torch.set_num_threads(1)
from mudarrib.core_loop import Trainer, TrainingArguments

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.attn, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)

    def forward(self, x, labels):
        logits = self.head(torch.tanh(self.attn(x)))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

optim, folder, batch = sys.argv[1], sys.argv[2], int(sys.argv[3])
generator = torch.Generator().manual_seed(0)
rows = [{"x": torch.randn(8, generator=generator), "labels": torch.tensor(n % 3)} for n in range(32)]
low_rank = {"optim_target_modules": ["attn"], "optim_args": "rank=3, update_proj_gap=2"} if "galore" in optim else {}
args = TrainingArguments(folder, optim=optim, max_steps=5, per_device_train_batch_size=batch, gradient_accumulation_steps=2,
                         learning_rate=0.01, save_strategy="no", use_cpu=True, disable_tqdm=True, **low_rank)
trainer = Trainer(Net(), args, train_dataset=rows)
trainer.train()
if trainer.is_world_process_zero():
    torch.save(trainer.model.state_dict(), f"{folder}/weights.pt")
"""


def run(folder, optim, world, batch):
    folder.mkdir()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = str(sock.getsockname()[1])
    processes = []
    for rank in range(world):
        ranked = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                  "MASTER_PORT": port} if world > 1 else {}  # fmt: skip
        command = [sys.executable, "-c", SCRIPT, optim, str(folder), str(batch)]
        environment = {**os.environ, **ranked, "OMP_NUM_THREADS": "1"}
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    outputs = [process.communicate(timeout=200)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(outputs)[-3000:]
    return torch.load(folder / "weights.pt", weights_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("optim", ["galore_adamw_layerwise", "lomo"])
def test_two_processes_equal_one(tmp_path, optim):
    one, two = run(tmp_path / "one", optim, 1, 4), run(tmp_path / "two", optim, 2, 2)
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, atol=1e-6, rtol=1e-5)
