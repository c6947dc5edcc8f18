"""Pickles of other trainers: refused where they can't be read safely. (With the trainers themselves: tests-integration.)"""

import json

import numpy as np
import pytest
import torch

from mudarrib.ckpt_hub import CheckpointError, CheckpointStore, RngState


def peers(folder, **files):
    folder.mkdir()
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 3, "epoch": 0.5}))
    for name, value in files.items():
        torch.save(value, folder / name.replace("_pt", ".pt").replace("_pth", ".pth"))
    return folder


class Held:
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        self.state = state


def test_states_come_as_parts(tmp_path):
    rng = RngState().state_dict()
    layout = {"python": rng["python"], "numpy": rng["numpy"], "cpu": rng["torch"]}
    folder = peers(tmp_path / "checkpoint-3", optimizer_pt={"lr": 1.0}, scaler_pt={"scale": 2.0}, rng_state_pth=layout)
    parts = {"optimizer": Held(), "scaler": Held(), "progress": Held(), "scheduler": Held(), "rng": RngState()}
    drawn = np.random.rand(), torch.rand(()).item()
    saved = CheckpointStore(tmp_path).load(parts, folder, strict=False)
    assert saved.step == 3 and saved.missing == ("scheduler",)
    assert (np.random.rand(), torch.rand(()).item()) == drawn
    assert parts["optimizer"].state == {"lr": 1.0} and parts["scaler"].state == {"scale": 2.0}
    assert parts["progress"].state["epoch"] == 0.5


def test_old_torch_is_not_trusted(tmp_path, monkeypatch):
    folder = peers(tmp_path / "checkpoint-3", optimizer_pt={"lr": 1.0})
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(CheckpointError, match="Install torch 2.10"):
        CheckpointStore(tmp_path).load({"optimizer": Held()}, folder)
    assert CheckpointStore(tmp_path).load({"progress": Held()}, folder).step == 3


def test_damaged_files_are_passed_over_or_named(tmp_path):
    peers(tmp_path / "checkpoint-3", optimizer_pt={"x": torch.arange(1000)})
    (tmp_path / "checkpoint-3").rename(tmp_path / "checkpoint-2")
    newer = peers(tmp_path / "checkpoint-3", optimizer_pt={"x": torch.arange(1000)})
    data = bytearray((newer / "optimizer.pt").read_bytes())
    data[len(data) // 2] ^= 8
    (newer / "optimizer.pt").write_bytes(data)
    store = CheckpointStore(tmp_path)
    assert store.load({"optimizer": Held()}).path.name == "checkpoint-2"
    with pytest.raises(CheckpointError, match="optimizer.pt"):
        store.load({"optimizer": Held()}, newer)
    (newer / "optimizer.pt").write_bytes(data[:-30])
    assert [saved.path.name for saved in store.checkpoints()] == ["checkpoint-2"]


def test_state_of_the_trainer_that_is_none(tmp_path):
    folder = peers(tmp_path / "checkpoint-3")
    (folder / "trainer_state.json").write_text('{"global_step": "many"}')
    with pytest.raises(CheckpointError, match="trainer_state.json"):
        CheckpointStore(tmp_path).load({"progress": Held()}, folder)
