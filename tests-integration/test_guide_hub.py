"""The guide's rows about the hub, by the real client against a hub on loopback."""

import functools
import importlib.util
import json
import logging
from pathlib import Path

import pytest
import torch
from huggingface_hub import snapshot_download
from transformers import BertConfig, BertForSequenceClassification

from mudarrib.ckpt_hub import HubPusher
from mudarrib.core_loop import Trainer, TrainingArguments

SPEC = importlib.util.spec_from_file_location(
    "hub_on_loopback", Path(__file__).parent.parent / "packages" / "ckpt-hub" / "tests" / "hub_server.py"
)
hub_server = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(hub_server)


@pytest.fixture
def online(monkeypatch):
    import huggingface_hub.constants as constants
    import huggingface_hub.utils._http as http

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(http.time, "sleep", lambda _: None)


def make(folder, **settings):
    torch.manual_seed(0)
    config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    ids = torch.randint(0, 20, (16, 5), generator=torch.Generator().manual_seed(0))
    rows = [{"input_ids": row, "labels": row[0] % 2} for row in ids]
    args = TrainingArguments(
        str(folder), max_steps=4, save_steps=2, per_device_train_batch_size=4, push_to_hub=True,
        hub_token=hub_server.TOKEN, hub_model_id="me/your-model", logging_steps=1, use_cpu=True, **settings,
    )  # fmt: skip
    return Trainer(BertForSequenceClassification(config), args, train_dataset=rows)


@pytest.mark.parametrize(
    ("strategy", "folders"),
    [
        ("end", set()),
        ("every_save", set()),
        ("checkpoint", {"last-checkpoint"}),
        ("all_checkpoints", {"checkpoint-2", "checkpoint-4"}),
    ],
)
def test_G7_G8_strategies_push_what_they_say(tmp_path, online, monkeypatch, strategy, folders):
    with hub_server.Hub() as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.endpoint)
        trainer = make(tmp_path / "run", hub_strategy=strategy)
        trainer.train()
        remote = hub.files("me/your-model")
        local = (tmp_path / "run" / "model.safetensors").read_bytes()
        assert remote["model.safetensors"] == local
        assert {"config.json", "README.md", "training_args.json"} <= set(remote)
        assert {path.split("/")[0] for path in remote if "checkpoint" in path.split("/")[0]} == folders
        for folder in folders:
            assert {f"{folder}/optimizer.safetensors", f"{folder}/trainer_state.json"} <= set(remote)
        card = remote["README.md"].decode()
        assert "learning_rate" in card and "your-model" in card
        assert not [path for path, data in remote.items() if hub_server.TOKEN.encode() in data]


def test_G8_last_checkpoint_resumes_from_a_fresh_clone(tmp_path, online, monkeypatch):
    with hub_server.Hub() as hub:
        with monkeypatch.context() as local:
            local.setattr("huggingface_hub.constants.ENDPOINT", hub.endpoint)
            whole = make(tmp_path / "run", hub_strategy="checkpoint")
            whole.train()
        clone = snapshot_download(
            "me/your-model", token=hub_server.TOKEN, local_dir=tmp_path / "clone", endpoint=hub.endpoint
        )
    again = make(clone)
    again.args.push_to_hub = False
    again.train(resume_from_checkpoint="last-checkpoint")
    assert again.state.global_step == 4
    expected = whole.model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in again.model.state_dict().items())


def test_a_hub_that_fails_stops_nothing_and_leaks_nothing(tmp_path, online, monkeypatch, caplog, capfd):
    quick = functools.partial(HubPusher, attempts=2, first_wait_s=0.01)
    monkeypatch.setattr("mudarrib.ckpt_hub.HubPusher", quick, raising=False)
    with hub_server.Hub(fault=lambda method, path: "500") as hub, caplog.at_level(logging.DEBUG):
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.endpoint)
        trainer = make(tmp_path / "run")
        trainer.train()
    assert trainer.state.global_step == 4
    assert (tmp_path / "run" / "checkpoint-4" / "manifest.json").is_file()
    said = "\n".join(record.getMessage() for record in caplog.records) + "".join(capfd.readouterr())
    assert "has not arrived" in said and hub_server.TOKEN not in said
    state = json.loads((tmp_path / "run" / "checkpoint-4" / "trainer_state.json").read_text())
    assert hub_server.TOKEN not in json.dumps(state)
