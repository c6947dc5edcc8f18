"""Runs a piece of code on several processes that form a gloo group.

The processes are forked from one that has imported torch, since importing takes longer than what they do.
"""

import multiprocessing
import textwrap

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["torch", "torch.distributed.fsdp", "mudarrib.ckpt_hub.store", "mudarrib.ckpt_hub.sharded"]
)

PREAMBLE = """
import sys, torch, torch.distributed as dist
from mudarrib.ckpt_hub import CheckpointError, CheckpointStore, RngState
sys.stdout, sys.stderr = open(f"{out}.out", "w"), open(f"{out}.err", "w")
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{out[:-1]}meeting", rank=rank, world_size=world)
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
    """Run the code on `world` processes; what each printed, split at blanks."""
    script = PREAMBLE + textwrap.dedent(code) + "\ndist.destroy_process_group(); sys.stdout.flush()\n"
    outputs = [str(root / f".{name}-{rank}") for rank in range(world)]
    names = [{"root": str(root), "rank": rank, "world": world, "out": outputs[rank]} for rank in range(world)]
    processes = [CONTEXT.Process(target=exec, args=(script, given)) for given in names]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    errors = [open(f"{out}.err").read() for out in outputs]
    assert all(process.exitcode == 0 for process in processes), errors
    return [open(f"{out}.out").read().split() for out in outputs]
