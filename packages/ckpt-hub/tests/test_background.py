"""Saving beside the loop: same bytes, errors that reach the caller, weights that are not torn."""

import subprocess
import sys
import threading

import pytest
import torch

from mudarrib.ckpt_hub import CheckpointError, CheckpointStore, ModelFiles, RngState


def make(width=64):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.BatchNorm1d(width))
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "rng": RngState()}


def step(parts, width=64):
    parts["model"](torch.randn(8, width)).pow(2).mean().backward()
    parts["optimizer"].step()
    parts["optimizer"].zero_grad()


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


class Pretrained(torch.nn.Linear):
    def save_pretrained(self, folder, *, state_dict):
        torch.save(state_dict, folder / "weights.pt")


@pytest.mark.parametrize("defer_copy", [False, True])
def test_bytes_equal_the_synchronous_ones(tmp_path, defer_copy):
    parts = make()
    step(parts)
    saved = CheckpointStore(tmp_path / "sync").save(1, parts, metric=0.25)
    store = CheckpointStore(tmp_path / "back", background=True, defer_copy=defer_copy)
    for n in (1, 2):  # the second comes out of a warm buffer
        same = store.save(n, parts, metric=0.25)
        step(parts)
        store.wait()
        if n == 1:
            assert files(saved.path) == files(same.path)
            saved = CheckpointStore(tmp_path / "sync").save(2, parts, metric=0.25)
    assert files(saved.path) == files(same.path)


def test_states_made_for_the_save_are_not_taken_for_one_another(tmp_path):
    """A tensor that is gone may leave its address to the next one of the same shape."""

    class Fresh:
        def __init__(self, value):
            self.value = value

        def state_dict(self):
            return {"x": torch.full((100_000,), self.value)}

        def load_state_dict(self, state):
            self.value = state["x"].mean().item()

    store = CheckpointStore(tmp_path, background=True)
    for step in (1, 2):  # only with the warm buffer are addresses used again
        store.save(step, {f"part{n}": Fresh(float(n)) for n in range(8)})
    again = {f"part{n}": Fresh(-1.0) for n in range(8)}
    store.load(again)
    assert [part.value for part in again.values()] == [float(n) for n in range(8)]


def test_training_goes_on_from_the_state_of_the_save(tmp_path):
    store = CheckpointStore(tmp_path, background=True, defer_copy=True)
    parts = make()
    for n in range(1, 12):
        step(parts)
        kept = {name: value.clone() for name, value in parts["model"].state_dict().items()}
        store.save(n, parts)
    step(parts)
    store.wait()
    again = make()
    assert store.load(again).step == 11
    assert all(torch.equal(kept[name], value) for name, value in again["model"].state_dict().items())


def test_failed_write_is_raised_by_the_next_save_and_by_wait(tmp_path):
    class Broken:
        def capture(self, copy):
            def write(folder):
                raise OSError(28, "No space left on device")

            return write

    store = CheckpointStore(tmp_path, background=True)
    parts = make()
    store.save(1, parts)
    store.save(2, parts, extra_files={"x": Broken()})
    with pytest.raises(CheckpointError, match="No space left"):
        store.save(3, parts)
    store.save(4, parts, extra_files={"x": Broken()})
    with pytest.raises(CheckpointError, match="No space left"):
        store.wait()
    store.wait()
    assert [saved.step for saved in store.checkpoints()] == [1]
    assert not list(tmp_path.glob(".tmp*"))


def test_one_write_at_a_time(tmp_path):
    gate, order = threading.Event(), []

    class Slow:
        def capture(self, copy):
            def write(folder):
                gate.wait(10)
                order.append("written")

            return write

    store = CheckpointStore(tmp_path, background=True)
    parts = make()
    store.save(1, parts, extra_files={"slow": Slow()})
    threading.Timer(0.2, gate.set).start()
    store.save(2, parts)
    order.append("second save returned")
    store.wait()
    assert order == ["written", "second save returned"]


def test_model_files_come_from_the_snapshot(tmp_path):
    model = Pretrained(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    store = CheckpointStore(tmp_path, background=True, defer_copy=True)
    before = model.weight.detach().clone()
    saved = store.save(1, {"optimizer": optimizer}, extra_files={"model": ModelFiles(model)})
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    store.wait()
    assert not torch.equal(before, model.weight)
    assert torch.equal(torch.load(saved.path / "weights.pt", weights_only=True)["weight"], before)


def test_weights_written_behind_its_back_are_noticed(tmp_path):
    started, go = threading.Event(), threading.Event()
    parts = make()
    store = CheckpointStore(tmp_path, background=True, defer_copy=True)
    finish = store._snapshot.finish

    def late():
        started.set()
        go.wait(10)
        finish()

    store._snapshot.finish = late
    store.save(1, parts)
    started.wait(10)
    with torch.no_grad():
        parts["model"][0].weight.add_(1)
    go.set()
    with pytest.raises(CheckpointError, match="finish_snapshot"):
        store.wait()


def test_then_is_called_when_the_checkpoint_is_there(tmp_path):
    seen = []
    store = CheckpointStore(tmp_path, background=True)
    store.save(3, make(), then=lambda saved: seen.append((saved.step, (saved.path / "manifest.json").exists())))
    store.wait()
    assert seen == [(3, True)]


def test_program_that_ends_without_waiting_leaves_a_whole_checkpoint(tmp_path):
    code = """
import sys, torch
from mudarrib.ckpt_hub import CheckpointStore
CheckpointStore(sys.argv[1], background=True).save(1, {"model": torch.nn.Linear(2000, 2000)})
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    CheckpointStore(tmp_path).verify("checkpoint-1")
