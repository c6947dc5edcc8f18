"""Several ranks: one checkpoint, each rank its own randomness, other world sizes."""

import subprocess
import sys
import textwrap

import pytest

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


SAVE = """
step()
store = CheckpointStore(root, background={background})
store.save(1, parts)
store.wait()
print(torch.rand(()).item(), torch.rand(()).item())
"""
LOAD = """
assert CheckpointStore(root).load(parts).step == 1
print(torch.rand(()).item(), torch.rand(()).item())
assert len(optimizer.state) == 2
"""


@pytest.mark.parametrize("background", [False, True])
def test_each_rank_continues_and_other_world_sizes_load(tmp_path, background):
    drawn = on_ranks(tmp_path, 2, SAVE.format(background=background), "save")
    assert drawn[0] != drawn[1]
    names = {path.name for path in (tmp_path / "checkpoint-1").iterdir()}
    assert {"rng-0.json", "rng-1.json", "model.safetensors", "optimizer.safetensors"} <= names
    assert on_ranks(tmp_path, 2, LOAD, "load2") == drawn
    three = on_ranks(tmp_path, 3, LOAD, "load3")
    assert three[:2] == drawn and three[2] not in drawn
    assert on_ranks(tmp_path, 1, LOAD, "load1") == drawn[:1]


def test_an_error_on_one_rank_ends_the_save_on_all(tmp_path):
    code = """
    class Broken:
        def state_dict(self):
            if rank == 1:
                raise ValueError("no state here")
            return {}
        def load_state_dict(self, state): pass
    try:
        CheckpointStore(root).save(1, {"x": Broken()})
    except ValueError as error:
        print("own")
    except CheckpointError as error:
        print("other" if "rank 1 failed" in str(error) else error)
    step()
    CheckpointStore(root).save(2, parts)
    """
    assert on_ranks(tmp_path, 2, code, "run") == [["other"], ["own"]]
    assert {path.name for path in tmp_path.glob("*checkpoint*")} == {"checkpoint-2"}


def test_a_failed_background_write_is_raised_on_all(tmp_path):
    code = """
    class Full:
        def capture(self, copy):
            def write(folder):
                raise OSError(28, "No space left on device")
            return write
    store = CheckpointStore(root, background=True)
    store.save(1, parts, extra_files={"x": Full()})
    try:
        store.wait()
    except CheckpointError as error:
        print("space" if "No space" in str(error) else "other")
    """
    assert on_ranks(tmp_path, 2, code, "run") == [["space"], ["other"]]


def test_damaged_newest_gives_all_ranks_the_older(tmp_path):
    code = """
    store = CheckpointStore(root)
    store.save(1, parts); store.save(2, parts)
    if rank == 0:
        path = store.root / "checkpoint-2" / "rng-1.json"
        path.write_text(path.read_text().replace("1", "2", 1))
    dist.barrier()
    print(store.load(parts).step)
    """
    assert on_ranks(tmp_path, 2, code, "run") == [["1"], ["1"]]
