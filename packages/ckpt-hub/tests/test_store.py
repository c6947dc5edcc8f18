"""Saving, loading, retention: the store as a bare loop uses it."""

import numpy as np
import pytest
import torch

from mudarrib.ckpt_hub import CheckpointError, CheckpointStore, RngState


class Progress:
    def __init__(self, step=0):
        self.step = step

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


def make_parts(seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 6])
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "rng": RngState(), "progress": Progress()}


def train(parts, steps):
    for _ in range(steps):
        loss = parts["model"](torch.randn(5, 4) + np.random.rand()).pow(2).mean()
        loss.backward()
        parts["optimizer"].step()
        parts["optimizer"].zero_grad()
        parts["scheduler"].step()
        parts["progress"].step += 1


def weights(parts):
    return torch.cat([value.flatten().double() for value in parts["model"].state_dict().values()])


def test_resumed_run_equals_the_uninterrupted_one(tmp_path):
    whole = make_parts()
    train(whole, 4)
    CheckpointStore(tmp_path).save(4, whole, metric=0.5)
    train(whole, 5)
    again = make_parts(seed=1)
    saved = CheckpointStore(tmp_path).load(again)
    assert (saved.step, saved.metric, again["progress"].step) == (4, 0.5, 4)
    train(again, 5)
    assert torch.equal(weights(whole), weights(again))


def test_nothing_to_load(tmp_path):
    assert CheckpointStore(tmp_path / "none").load({}) is None


def test_layout(tmp_path):
    parts = make_parts()
    train(parts, 1)
    saved = CheckpointStore(tmp_path).save(
        1, parts, extra_files={"note": lambda folder: (folder / "note.txt").write_text("x")}
    )
    names = {path.name for path in saved.path.iterdir()}
    assert names == {
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
        "rng.json",
        "note.txt",
        "manifest.json",
    }
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-1", ".lock"}


def test_flipped_bit_gives_the_older_one(tmp_path):
    store = CheckpointStore(tmp_path)
    parts = make_parts()
    store.save(1, parts)
    newer = store.save(2, parts).path / "model.safetensors"
    data = bytearray(newer.read_bytes())
    data[-1] ^= 1
    newer.write_bytes(data)
    assert store.load(parts).step == 1
    with pytest.raises(CheckpointError, match="SHA-256"):
        store.load(parts, newer.parent)


def test_damaged_one_is_told_of_once_and_never_deleted(tmp_path, caplog):
    store = CheckpointStore(tmp_path, keep=1)
    (tmp_path / "checkpoint-9").mkdir()
    for step in (1, 2, 3):
        store.save(step, {"progress": Progress(step)})
    assert [record.levelname for record in caplog.records if "checkpoint-9" in record.message].count("WARNING") == 1
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {"checkpoint-3", "checkpoint-9"}


def test_keep_never_drops_newest_or_protected(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    parts = make_parts()
    for step in range(1, 6):
        store.save(step, parts, protect=[2])
    assert [saved.step for saved in store.checkpoints()] == [2, 5]


def test_protected_path_in_another_spelling(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = CheckpointStore(tmp_path / "run", keep=1)
    for step in (1, 2, 3):
        store.save(step, {"progress": Progress()}, protect=["run/checkpoint-1"])
    assert [saved.step for saved in store.checkpoints()] == [1, 3]


@pytest.mark.parametrize("name", ["state.json", "manifest.json", "model.safetensors"])
def test_extra_file_in_the_place_of_ours(tmp_path, name):
    with pytest.raises(CheckpointError, match=f"extra_files: {name}"):
        CheckpointStore(tmp_path).save(
            1, make_parts(), extra_files={"x": lambda folder: (folder / name).write_text("")}
        )


def test_missing_part(tmp_path):
    store = CheckpointStore(tmp_path)
    parts = make_parts()
    store.save(1, {"progress": parts["progress"]})
    with pytest.raises(CheckpointError, match="no state for optimizer"):
        store.load({"optimizer": parts["optimizer"]})
    assert store.load({"optimizer": parts["optimizer"]}, strict=False).missing == ("optimizer",)


def test_renamed_and_moved_checkpoint_loads(tmp_path):
    parts = make_parts()
    CheckpointStore(tmp_path).save(7, parts).path.rename(tmp_path / "last-checkpoint")
    for given in ("last-checkpoint", tmp_path / "last-checkpoint"):
        assert CheckpointStore(tmp_path).load(parts, given).step == 7


def test_same_step_again_replaces(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(1, {"progress": Progress(1)})
    store.save(1, {"progress": Progress(9)})
    progress = Progress()
    store.load({"progress": progress})
    assert progress.step == 9


def test_scaler_and_a_generator_of_ones_own(tmp_path):
    class Generator:
        def __init__(self):
            self.generator = torch.Generator().manual_seed(1)

        def state_dict(self):
            return {"state": self.generator.get_state()}

        def load_state_dict(self, state):
            self.generator.set_state(state["state"])

    scaler, own = torch.amp.GradScaler("cpu", init_scale=8.0), Generator()
    scaler.scale(torch.ones(()))
    torch.rand(3, generator=own.generator)
    CheckpointStore(tmp_path).save(1, {"scaler": scaler, "own": own})
    expected = torch.rand(3, generator=own.generator)
    scaler, own = torch.amp.GradScaler("cpu"), Generator()
    CheckpointStore(tmp_path).load({"scaler": scaler, "own": own})
    assert scaler.get_scale() == 8.0 and torch.equal(torch.rand(3, generator=own.generator), expected)
