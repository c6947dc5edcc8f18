"""Several ranks: one checkpoint, each rank its own randomness, other world sizes."""

import pytest
from ranks_kit import on_ranks

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
