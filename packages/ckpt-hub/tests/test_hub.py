"""Pushing through the hub's real client to a hub on loopback, under faults."""

import json
import logging
import os
import random
import re
import threading
import time
import traceback

import pytest
import torch
from hub_server import TOKEN, Hub
from huggingface_hub import HfApi, snapshot_download

from mudarrib.ckpt_hub import CheckpointError, CheckpointStore, HubPusher, RngState
from mudarrib.ckpt_hub.hub.secrets import is_secret_name, redact
from mudarrib.ckpt_hub.hub.strategies import targets

pytestmark = pytest.mark.usefixtures("online")


def parts(value=0.0):
    model = torch.nn.Linear(30, 30)
    torch.nn.init.constant_(model.weight, value)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), momentum=0.9), "rng": RngState()}


def save(root, step, **kwargs):
    def config(folder):
        (folder / "config.json").write_text(json.dumps({"step": step}))
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))

    return CheckpointStore(root, **kwargs).save(step, parts(step), extra_files={"config": config})


def content(folder, prefix=""):
    return {prefix + str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def pusher(hub, strategy="every_save", **kwargs):
    return HubPusher("run", token=TOKEN, endpoint=hub.endpoint, strategy=strategy, first_wait_s=0.001, **kwargs)


MODEL = {"model.safetensors", "config.json"}


@pytest.mark.parametrize("strategy", ["end", "every_save", "checkpoint", "all_checkpoints"])
def test_strategies(tmp_path, strategy):
    with Hub() as hub:
        push = pusher(hub, strategy)
        saved = {}
        for step in (1, 2):
            saved[step] = save(tmp_path, step)
            assert push.push(saved[step].path, "save", step=step) == push.pushes_at("save") == (strategy != "end")
            assert push.wait()
        (tmp_path / "README.md").write_text("# A model")
        (tmp_path / "model.safetensors").write_bytes(b"final")
        assert push.push(tmp_path, "end", blocking=True)
        there = hub.files("me/run")
        expected = {"README.md": b"# A model", "model.safetensors": b"final"}
        if strategy != "end":
            expected["config.json"] = content(saved[2].path)["config.json"]
        if strategy == "checkpoint":
            expected |= content(saved[2].path, "last-checkpoint/")
        if strategy == "all_checkpoints":
            expected |= content(saved[1].path, "checkpoint-1/") | content(saved[2].path, "checkpoint-2/")
        assert there == expected
        assert not list(tmp_path.glob(".push*"))


def test_each_push_is_one_commit_and_drops_what_is_gone(tmp_path):
    with Hub() as hub:
        push = pusher(hub, "checkpoint")
        first = save(tmp_path, 1)
        (first.path / "old.txt").write_text("x")
        assert push.push(first.path, blocking=True)
        assert "last-checkpoint/old.txt" in hub.files("me/run")
        second = save(tmp_path, 2)
        assert push.push(second.path, blocking=True)
        assert len(hub.repos["me/run"].commits) == 2
        assert {p for p in hub.files("me/run") if "/" in p} == set(content(second.path, "last-checkpoint/"))


def test_fresh_clone_resumes_from_last_checkpoint(tmp_path):
    with Hub() as hub:
        there = parts(3.0)
        saved = CheckpointStore(tmp_path / "a").save(7, there)
        assert pusher(hub, "checkpoint", private=True).push(saved.path, blocking=True)
        assert hub.repos["me/run"].private
        clone = snapshot_download("me/run", local_dir=tmp_path / "b", endpoint=hub.endpoint, token=TOKEN)
        again = parts()
        assert CheckpointStore(clone).load(again, "last-checkpoint").step == 7
        assert torch.equal(again["model"].weight, there["model"].weight)


def test_newest_wins_and_one_is_in_flight(tmp_path):
    gate, inside, most = threading.Event(), [], []

    def slow(method, path):
        if "/commit/" in path:
            inside.append(1)
            most.append(len(inside))
            gate.wait(10)
            inside.pop()

    with Hub(slow) as hub:
        push = pusher(hub, "checkpoint")
        for step in range(1, 6):
            push.push(save(tmp_path, step, keep=1).path)  # each is deleted while it waits
            if step == 1:
                while not inside:
                    time.sleep(0.01)
        gate.set()
        assert push.wait()
        assert max(most) == 1
        assert [c["summary"] for c in hub.repos["me/run"].commits] == [
            f"Training in progress, step {n}" for n in (1, 5)
        ]
        assert hub.files("me/run")["last-checkpoint/config.json"] == b'{"step": 5}'


def test_all_checkpoints_arrive_though_deleted_locally(tmp_path):
    with Hub() as hub:
        push = pusher(hub, "all_checkpoints")
        for step in range(1, 6):
            push.push(save(tmp_path, step, keep=1).path)
        assert push.wait()
        steps = {int(m[1]) for p in hub.files("me/run") if (m := re.match(r"checkpoint-(\d+)/manifest", p))}
        assert steps == {1, 2, 3, 4, 5}


def faulty(seed, rate=0.35):
    draw = random.Random(seed)
    lock = threading.Lock()

    def fault(method, path):
        with lock:
            return draw.choice(["429", "500", "503", "cut", "cut-late", "half"]) if draw.random() < rate else None

    return fault


@pytest.mark.parametrize("seed", range(int(os.environ.get("HUB_PUSHES", "10"))))
def test_content_is_equal_under_faults(tmp_path, seed, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    with Hub(faulty(seed)) as hub:
        push = pusher(hub, ["checkpoint", "all_checkpoints"][seed % 2], attempts=60)
        saved = save(tmp_path, seed)
        assert push.push(saved.path, message=f"with {TOKEN}", blocking=True), push.error
        name = "last-checkpoint/" if seed % 2 == 0 else f"checkpoint-{seed}/"
        there = content(saved.path)
        assert hub.files("me/run") == content(saved.path, name) | {n: there[n] for n in MODEL}
        assert content(saved.path) == there
        said = caplog.text + "".join(capfd.readouterr()) + json.dumps(hub.repos["me/run"].commits)
        assert TOKEN not in said and not any(TOKEN.encode() in data for data in hub.files("me/run").values())


@pytest.mark.parametrize("fault", ["401", "500", "cut"])
def test_failing_hub_never_raises_and_loses_nothing(tmp_path, fault, caplog):
    caplog.set_level(logging.DEBUG)
    broken = [True]
    with Hub(
        lambda *_: fault if broken[0] and fault != "401" else None, token="other" if fault == "401" else TOKEN
    ) as hub:
        push = pusher(hub, "checkpoint", attempts=2)
        saved = save(tmp_path, 1)
        before = content(saved.path)
        assert push.push(saved.path) and not push.wait()
        assert "me/run" not in hub.repos and content(saved.path) == before
        assert push.error and TOKEN not in push.error + caplog.text + repr(push)
        assert ("token may write" in push.error) == (fault == "401")
        broken[0], hub.token = False, TOKEN
        assert push.wait()  # what could not be sent is tried again
        assert hub.files("me/run").keys() >= content(saved.path, "last-checkpoint/").keys()


def test_what_had_arrived_is_not_sent_again(tmp_path):
    failures = iter(["500", "cut", "cut-late"])
    with Hub(lambda method, path: next(failures, None) if "/commit/" in path else None) as hub:
        assert pusher(hub, "checkpoint").push(save(tmp_path, 1).path, blocking=True)
        sent = [path for method, path, _ in hub.requests if method == "PUT"]
        assert len(sent) == len(set(sent)) == len(hub.lfs) > 2


def test_error_keeps_no_request_with_the_token(tmp_path):
    with Hub(token="another") as hub:
        push = pusher(hub, attempts=1)
        try:
            push._repository.send([], "x")
        except CheckpointError as error:
            text = "".join(traceback.TracebackException.from_exception(error, capture_locals=False).format())
            assert TOKEN not in text and error.__cause__ is None and error.__context__ is None
        else:
            pytest.fail("no error")


def test_public_repository_is_refused_where_private_is_asked(tmp_path):
    with Hub() as hub:
        HfApi(endpoint=hub.endpoint, token=TOKEN).create_repo("run", private=False)
        push = pusher(hub, private=True, attempts=2)
        assert not push.push(save(tmp_path, 1).path, blocking=True)
        assert "public" in push.error and not hub.files("me/run")


def test_revision(tmp_path):
    with Hub() as hub:
        assert pusher(hub, revision="dev/1").push(save(tmp_path, 1).path, blocking=True)
        assert not hub.files("me/run") and hub.files("me/run", "dev/1").keys() == MODEL


def test_wait_ends_though_the_hub_hangs(tmp_path):
    gate = threading.Event()
    with Hub(lambda *_: gate.wait(20) and None) as hub:
        push = pusher(hub)
        push.push(save(tmp_path, 1).path)
        assert not push.wait(timeout_s=0.2)
        assert "no end" in push.error
        gate.set()
        assert push.wait()


def test_damaged_checkpoint_is_not_sent(tmp_path):
    with Hub() as hub:
        (tmp_path / "checkpoint-3").mkdir()
        push = pusher(hub, "checkpoint")
        assert not push.push(tmp_path / "checkpoint-3", blocking=True)
        assert "not a finished checkpoint" in push.error and not hub.requests


def test_unknown_strategy():
    with pytest.raises(CheckpointError, match="'sometimes'.*all_checkpoints"):
        HubPusher("run", strategy="sometimes")


def test_end_sends_no_checkpoints_and_nothing_hidden():
    every = [".lock", "_tmp", "a.txt", "b/c.txt", "checkpoint-5/x", "last-checkpoint/y", "checkpoints.md", "b/.cache/x"]
    assert targets("every_save", "end", None, [], every)[0].files == ("a.txt", "b/c.txt", "checkpoints.md")


def test_secrets():
    assert redact("key 12:34 hf_abcdefghij Bearer abcdefghij", "12:34") == "key <hidden> <hidden> <hidden>"
    assert all(map(is_secret_name, ["hub_token", "HF_TOKEN", "wandb_api_key", "password"]))
    assert not any(map(is_secret_name, ["max_tokens", "eos_token", "tokenizer_name", "include_num_input_tokens_seen"]))
