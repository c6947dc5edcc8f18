"""Two processes train, save and resume like one: DDP and FSDP in both versions, whole checkpoints and sharded ones."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mudarrib.launch import new, write

sys.path.insert(0, str(Path(__file__).parent))
import distributed_job

JOB = Path(distributed_job.__file__)
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("processes")]
# What is trained, with the layer to shard by, and where its weights are saved.
KINDS = {
    "bert": ("BertLayer", "model.safetensors"),
    "gpt2": ("GPT2Block", "model.safetensors"),
    "lora": ("GPT2Block", "adapter_model.safetensors"),
}
TORCHRUN = ["torch.distributed.run", "--nproc_per_node", "2"]


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def launched(command, folder, *flags, fails=False, **arguments):
    """What the processes said, or their output where they are to fail."""
    command = [sys.executable, "-m", *command, str(JOB), str(folder), "--arguments", json.dumps(arguments), *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    if fails:
        assert done.returncode != 0
        return done.stderr
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((folder / "said.json").read_text())


def torchrun(folder, *flags, **more):
    return launched([*TORCHRUN, "--master_port", str(free_port())], folder, *flags, **more)


def accelerate(config, folder, *flags, **more):
    path = folder.with_suffix(".yaml")
    write(config, path)
    command = ["accelerate.commands.launch", "--config_file", str(path), f"--main_process_port={free_port()}"]
    return launched(command, folder, *flags, **more)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same runs by one process, with twice the rows a batch."""
    folder = tmp_path_factory.mktemp("alone")
    for kind in KINDS:
        distributed_job.main([str(folder / kind), "--kind", kind, "--batch", "4"])
    return folder


def values(said, run, name):
    return [entry[name] for entry in said[run]["history"] if name in entry]


def weights_of(folder, run="final"):
    (path,) = (folder / run).glob("*.safetensors")
    return load_file(path)


def check_equal(alone, said, folder, kind):
    """Loss, norm, rate and metrics step by step, and the weights; resumed, bit for bit."""
    expected = json.loads((alone / kind / "said.json").read_text())
    for name in ("loss", "grad_norm", "learning_rate", "eval_loss", "eval_rows", "eval_labels"):
        assert values(said, "first", name) == pytest.approx(values(expected, "first", name), abs=1e-6), name
        assert values(said, "again", name) == values(said, "first", name), f"{name} resumed bit for bit"
    assert said["first"]["one_row"]["eval_loss"] == pytest.approx(expected["first"]["one_row"]["eval_loss"], abs=1e-6)
    assert said["first"]["one_row"]["eval_rows"] == 1
    ours, theirs = weights_of(folder), weights_of(alone / kind)
    assert ours.keys() == theirs.keys(), "the files are those of one process"
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, atol=2e-5, rtol=0)
    resumed = weights_of(folder / "again")
    assert all(torch.equal(weight, resumed[name]) for name, weight in ours.items())
    return expected["first"]


def check_goes_on_alone(alone, folder, kind, tmp_path):
    """One process resumes what two have saved, to the same end."""
    distributed_job.main(
        [str(tmp_path / "one"), "--kind", kind, "--batch", "4", "--resume", str(folder / "run" / "checkpoint-3")]
    )
    ended, expected = weights_of(tmp_path / "one" / "again"), weights_of(alone / kind)
    for name, weight in expected.items():
        torch.testing.assert_close(ended[name], weight, atol=2e-5, rtol=0)


def files_of(folder):
    return {path.name for path in (folder / "run" / "checkpoint-6").iterdir()}


@pytest.mark.parametrize("kind", ["bert", "gpt2", "lora"])
def test_ddp(alone, tmp_path, kind):
    folder = tmp_path / "two"
    said = accelerate(new("cpu"), folder, "--kind", kind)
    whole = check_equal(alone, said, folder, kind)
    assert said["first"]["wrapper"] == "DistributedDataParallel" and said["first"]["local"] == whole["local"]
    assert {KINDS[kind][1], "optimizer.safetensors", "rng-0.json", "rng-1.json"} <= files_of(folder)
    check_goes_on_alone(alone, folder, kind, tmp_path)


# The loss rises here, so that an earlier step's model has to be loaded again at the end.
BEST = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": False}


def check_sharded(said, whole, version, layer):
    wrapper = said["first"]["wrapper"]
    assert wrapper.startswith("FSDP") if version == 2 else wrapper == "FullyShardedDataParallel"
    assert f"FSDP{layer}" in said["first"]["modules"] if version == 2 else layer in said["first"]["modules"]
    assert said["first"]["local"] / whole["local"] == pytest.approx(0.5, abs=0.04), "half of the weights each"
    share = said["first"]["optimizer_state"] / whole["optimizer_state"]
    # Version 1 cuts a layer's weights in two wherever its trained ones lie.
    assert share < 1 if whole["wrapper"].startswith("Peft") else share == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize(
    ("version", "kind", "saves"),
    [
        (2, "bert", "SHARDED"),
        (2, "gpt2", "FULL"),
        (1, "bert", "FULL"),
        (1, "gpt2", "SHARDED"),
        (2, "lora", "SHARDED"),
        (1, "lora", "FULL"),
    ],
)
def test_fsdp(alone, tmp_path, version, kind, saves):
    folder, (layer, file) = tmp_path / "two", KINDS[kind]
    settings = {"fsdp_state_dict_type": f"{saves}_STATE_DICT", "fsdp_transformer_layer_cls_to_wrap": layer}
    if kind == "bert":
        config = new("fsdp2" if version == 2 else "fsdp", use_cpu=True, mixed_precision="no", **settings)
        said = accelerate(config, folder, "--kind", kind)
    else:
        said = torchrun(folder, "--kind", kind, fsdp="full_shard", fsdp_config={**settings, "version": version})
    check_sharded(said, check_equal(alone, said, folder, kind), version, layer)
    if saves == "FULL":
        assert {file, "optimizer.safetensors", "rng-0.json", "rng-1.json"} <= files_of(folder)
    else:
        shards = {path.suffix for path in (folder / "run" / "checkpoint-6" / "sharded").iterdir()}
        assert shards == {".safetensors"} and not files_of(folder) & {file, "optimizer.safetensors"}
    check_goes_on_alone(alone, folder, kind, tmp_path)


@pytest.mark.parametrize("saves", ["FULL", "SHARDED"])
def test_fsdp_takes_up_what_one_process_saved_and_ends_with_the_best_model(alone, tmp_path, saves):
    said = torchrun(
        tmp_path / "two", "--kind", "gpt2", "--resume", str(alone / "gpt2" / "run" / "checkpoint-3"),
        fsdp="full_shard", fsdp_config={"transformer_layer_cls_to_wrap": "GPT2Block", "state_dict_type": f"{saves}_STATE_DICT"},
        save_steps=1, eval_steps=1, background_save=True, **BEST,
    )  # fmt: skip
    expected = json.loads((alone / "gpt2" / "said.json").read_text())
    assert values(said, "again", "loss") == pytest.approx(values(expected, "first", "loss"), abs=1e-6)
    best = min((e["eval_loss"], e["step"]) for e in said["again"]["history"] if "eval_loss" in e and e["step"] > 3)
    assert best[1] < 6, "else nothing would have to be loaded"
    ended = weights_of(tmp_path / "two" / "again")
    distributed_job.main(
        [str(tmp_path / "one"), "--kind", "gpt2", "--batch", "4", "--resume",
         str(alone / "gpt2" / "run" / "checkpoint-3"), "--arguments",
         json.dumps({"save_steps": 1, "eval_steps": 1, **BEST})]
    )  # fmt: skip
    for name, weight in weights_of(tmp_path / "one" / "again").items():
        torch.testing.assert_close(ended[name], weight, atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    ("version", "optim", "fix"),
    [
        (1, "lomo", 'FSDP 1 keeps flat pieces: set fsdp_config={"version": 2}'),
        (1, "galore_adamw", 'FSDP 1 keeps flat pieces: set fsdp_config={"version": 2}'),
        (2, "adafactor", "take optim='adamw_torch_fused', or DDP"),
    ],
)
def test_fsdp_refuses_an_optimizer_that_would_see_no_matrices(tmp_path, version, optim, fix):
    settings = {"transformer_layer_cls_to_wrap": "BertLayer", "version": version}
    output = torchrun(tmp_path / "two", fails=True, fsdp="full_shard", fsdp_config=settings, optim=optim)
    assert f"ArgumentError: optim = {optim!r}" in output and fix in output


def test_one_process_that_breaks_down_ends_all_with_its_own_error_and_the_run_goes_on_from_there(alone, tmp_path):
    folder = tmp_path / "two"
    output = torchrun(folder, "--fail_at", "4", fails=True)
    assert output.index("ZeroDivisionError: the second process breaks down") < output.index("ChildFailedError")
    assert "rank      : 1" in output[output.index("Root Cause") :]
    said = torchrun(folder, "--resume", str(folder / "run" / "checkpoint-3"))
    expected = json.loads((alone / "bert" / "said.json").read_text())
    assert values(said, "again", "loss") == pytest.approx(values(expected, "first", "loss"), abs=1e-6)


def test_one_process_that_is_killed_ends_all_and_one_process_goes_on_alone(alone, tmp_path):
    folder = tmp_path / "two"
    output = torchrun(folder, "--die_at", "4", fails=True)
    assert "Signal 9 (SIGKILL)" in output[output.index("Root Cause") :]
    distributed_job.main(
        [str(tmp_path / "one"), "--batch", "4", "--resume", str(folder / "run" / "checkpoint-3")]
    )  # fmt: skip
    said, expected = (json.loads((place / "said.json").read_text()) for place in (tmp_path / "one", alone / "bert"))
    assert values(said, "again", "loss") == pytest.approx(values(expected, "first", "loss"), abs=1e-6)


def test_a_process_without_a_row_in_training_is_not_waited_for(tmp_path):
    """Five rows are a round of four and one of one, which only one of two processes can have."""
    given = {"max_steps": 6, "gradient_accumulation_steps": 1}
    said = torchrun(tmp_path / "two", "--rows", "5", **given)
    distributed_job.main([str(tmp_path / "one"), "--rows", "5", "--batch", "4", "--arguments", json.dumps(given)])
    expected = json.loads((tmp_path / "one" / "said.json").read_text())
    for name in ("loss", "grad_norm", "eval_loss"):
        assert values(said, "first", name) == pytest.approx(values(expected, "first", name), abs=1e-6), name
        assert values(said, "again", name) == values(said, "first", name), name


def test_G16_levels_by_process(tmp_path):
    command = [*TORCHRUN, "--master_port", str(free_port()), "--log-dir", str(tmp_path / "logs"), "--redirects", "3"]
    launched(command, tmp_path / "two", log_level="info", log_level_replica="error")
    main, replica = sorted((tmp_path / "logs").glob("*/attempt_0/*/stderr.log"), key=lambda path: path.parent.name)
    assert re.search(r"INFO mudarrib", main.read_text())
    assert not re.search(r"(INFO|WARNING) mudarrib", replica.read_text())
