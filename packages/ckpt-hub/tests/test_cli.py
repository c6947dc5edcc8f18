"""The command line, as typed."""

import json
import subprocess
import sys

import pytest
import torch
from hub_server import TOKEN, Hub

from mudarrib.ckpt_hub import CheckpointStore, RngState
from mudarrib.ckpt_hub.cli import main


@pytest.fixture
def run(tmp_path):
    store = CheckpointStore(tmp_path)
    for step in (1, 2, 3):
        model = torch.nn.Linear(4, 4)
        parts = {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "rng": RngState()}
        store.save(step, parts, metric=step / 4)
    store.wait()
    return tmp_path


def said(capsys, *arguments, code=0):
    assert main([str(argument) for argument in arguments]) == code
    return capsys.readouterr()


def test_ls(run, capsys):
    out = said(capsys, "ls", run).out.splitlines()
    assert out[0].split() == ["step", "metric", "size", "parts", "path"] and out[3].startswith("3     0.75")
    rows = json.loads(said(capsys, "ls", run, "--json").out)
    assert [row["step"] for row in rows] == [1, 2, 3] and rows[0]["parts"] == ["model", "optimizer", "rng"]
    assert "No valid checkpoint" in said(capsys, "ls", run / "none").out


def test_verify(run, capsys):
    assert said(capsys, "verify", run).out.count("ok ") == 3
    path = run / "checkpoint-2" / "rng.json"
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    assert "DAMAGED  " in said(capsys, "verify", run, code=1).out
    rows = json.loads(said(capsys, "verify", run / "checkpoint-1", run / "checkpoint-2", "--json", code=1).out)
    assert [row["ok"] for row in rows] == [True, False] and "rng.json" in rows[1]["error"]


def test_show(run, capsys):
    out = said(capsys, "show", run / "checkpoint-2").out
    assert "model, optimizer, rng" in out and "model.safetensors" in out
    shown = json.loads(said(capsys, "show", run / "checkpoint-2", "--json").out)
    assert shown["step"] == 2 and shown["per_rank"] == ["rng"] and shown["files"]["model.safetensors"] > 80
    assert "not a finished checkpoint" in said(capsys, "show", run, code=1).err


def test_convert_there_and_back(run, capsys):
    assert "layout of transformers" in said(capsys, "convert", run / "checkpoint-3", run / "hf" / "checkpoint-3").out
    there = {path.name for path in (run / "hf" / "checkpoint-3").iterdir()}
    assert there == {"model.safetensors", "optimizer.pt", "rng_state.pth", "trainer_state.json"}
    back = json.loads(said(capsys, "convert", run / "hf" / "checkpoint-3", run / "back" / "checkpoint-3", "--json").out)
    assert back["layout"] == "mudarrib"
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    parts = {"model": model, "optimizer": optimizer, "rng": RngState()}
    assert CheckpointStore(run / "back").load(parts).step == 3
    assert "exists" in said(capsys, "convert", run / "checkpoint-3", run / "hf" / "checkpoint-3", code=1).err


def test_prune(run, capsys):
    out = said(capsys, "prune", run, "--keep", 1, "--protect", 1, "--dry-run").out
    assert out.splitlines() == [f"Would delete {run / 'checkpoint-2'}"]
    gone = json.loads(said(capsys, "prune", run, "--keep", 1, "--protect", 1, "--json").out)["deleted"]
    assert gone == [str(run / "checkpoint-2")]
    assert [saved.step for saved in CheckpointStore(run).checkpoints()] == [1, 3]
    assert "Keep at least 1" in said(capsys, "prune", run, "--keep", 0, code=1).err


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("whole", [False, True])
def test_push(run, capsys, monkeypatch, whole):
    import huggingface_hub.constants as constants

    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with Hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
        out = said(capsys, "push", run / "checkpoint-3", "run", *(["--whole"] if whole else []))
        assert "Pushed to me/run" in out.out and TOKEN not in out.out + out.err
        assert ("last-checkpoint/state.json" in hub.files("me/run")) == whole
        monkeypatch.setenv("HF_TOKEN", "hf_wrongwrongwrong")
        err = said(capsys, "push", run / "checkpoint-3", "run", code=1).err
        assert "token may write" in err and "wrongwrong" not in err


def test_help_needs_no_torch():
    code = """
import sys
from mudarrib.ckpt_hub.cli import main
try:
    main(["--help"])
finally:
    assert "torch" not in sys.modules
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0 and "convert" in result.stdout, result.stderr
