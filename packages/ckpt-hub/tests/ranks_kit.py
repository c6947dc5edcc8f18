"""Runs a piece of code on several processes that form a gloo group."""

import subprocess
import sys
import textwrap

PREAMBLE = """
import sys, torch, torch.distributed as dist
from mudarrib.ckpt_hub import CheckpointError, CheckpointStore, RngState
root, rank, world = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{root}/.meeting-{sys.argv[4]}", rank=rank, world_size=world)
torch.manual_seed(100 + rank)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(model.parameters())
parts = {"model": model, "optimizer": optimizer, "rng": RngState()}
def step():
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def on_ranks(root, world, code, name):
    """Run the code on `world` processes; what each printed."""
    script = textwrap.dedent(PREAMBLE) + textwrap.dedent(code) + "\ndist.destroy_process_group()\n"
    command = [sys.executable, "-c", script, str(root)]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(world), name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(world)
    ]
    results = [process.communicate(timeout=120) for process in processes]
    assert all(process.returncode == 0 for process in processes), [err for _, err in results]
    return [out.split() for out, _ in results]
