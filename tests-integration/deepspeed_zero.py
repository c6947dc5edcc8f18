"""DeepSpeed's ZeRO stages on two processes like one. Run by tools/test_deepspeed, since deepspeed compiles at first."""

import json
import sys
from pathlib import Path

import pytest

from mudarrib.launch import new

sys.path.insert(0, str(Path(__file__).parent))
import distributed_job
from test_processes import BEST, accelerate, alone, check_equal, check_goes_on_alone, torchrun, values  # noqa: F401

AUTO = dict.fromkeys(
    ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping", "train_batch_size"), "auto"
)
OWN = {
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto",
                                              "torch_adam": True}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_min_lr": "auto",
                                                      "warmup_max_lr": "auto", "warmup_num_steps": "auto",
                                                      "warmup_type": "linear"}},
}  # fmt: skip


def zero(stage, **more):
    return {"deepspeed": {**AUTO, "zero_optimization": {"stage": stage}, **more}}


@pytest.mark.parametrize(
    ("stage", "kind"), [(1, "bert"), (2, "bert"), (3, "bert"), (3, "gpt2"), (2, "lora"), (3, "lora")]
)
def test_a_stage(alone, tmp_path, stage, kind):  # noqa: F811
    folder = tmp_path / "two"
    said = torchrun(folder, "--kind", kind, **zero(stage))
    whole = check_equal(alone, said, folder, kind)
    assert said["first"]["wrapper"] == "DeepSpeedEngine"
    share = said["first"]["local"] / whole["local"]
    assert 0.49 < share < 0.53 if stage == 3 else share == 1, "only stage 3 splits the weights"
    moments = said["first"]["optimizer_state"] / whole["optimizer_state"]
    assert 0.49 < moments < 0.53, "each process holds half of the moments"
    pickled = [path for path in folder.rglob("*") if path.suffix in (".pt", ".pth", ".bin", ".pkl")]
    assert not pickled
    check_goes_on_alone(alone, folder, kind, tmp_path)


@pytest.mark.parametrize(
    ("stage", "optim", "name"), [(1, "adafactor", "Adafactor"), (3, "muon", "Muon"), (0, "lomo", "FusedLomo")]
)
def test_an_optimizer_that_would_see_no_matrices_is_refused(tmp_path, stage, optim, name):
    output = torchrun(tmp_path / "two", fails=True, optim=optim, **zero(stage))
    assert f"ArgumentError: optim = '{name}" in output
    assert ("steps by itself" if stage == 0 else f"DeepSpeed's stage {stage} keeps flat pieces") in output


def test_adafactor_at_stage_0_equals_one_process(tmp_path):
    given = {"optim": "adafactor", "max_grad_norm": 0.0}
    said = torchrun(tmp_path / "two", **given, **zero(0))
    distributed_job.main([str(tmp_path / "one"), "--batch", "4", "--arguments", json.dumps(given)])
    expected = json.loads((tmp_path / "one" / "said.json").read_text())
    assert values(said, "first", "loss") == pytest.approx(values(expected, "first", "loss"), abs=1e-6)
    assert values(said, "again", "loss") == values(said, "first", "loss"), "resumed bit for bit"


def test_half_precision_at_stage_0_is_refused(tmp_path):
    output = torchrun(tmp_path / "two", fails=True, bf16=True, **zero(0, bf16={"enabled": "auto"}))
    assert "ArgumentError: deepspeed = 'stage 0 with bf16'" in output and "set stage 1" in output


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_half_precision_resumes_bit_for_bit(tmp_path, stage):
    said = torchrun(tmp_path / "two", bf16=True, **zero(stage, bf16={"enabled": "auto"}))
    assert said["first"]["wrapper"] == "DeepSpeedEngine"
    for name in ("loss", "grad_norm", "eval_loss"):
        assert values(said, "again", name) == values(said, "first", name), name


@pytest.mark.parametrize("stage", [0, 2])
def test_deepspeed_s_own_optimizer_and_scheduler(tmp_path, stage):
    said = torchrun(tmp_path / "two", lr_scheduler_type="linear", **zero(stage, **OWN))
    for name in ("loss", "grad_norm", "learning_rate", "eval_loss"):
        assert values(said, "again", name) == values(said, "first", name), f"{name} resumed bit for bit"


def test_the_best_model_is_loaded_at_the_end_though_it_is_split(tmp_path):
    said = torchrun(tmp_path / "two", save_steps=1, eval_steps=1, **BEST, **zero(3))
    assert said["first"]["history"]


def test_the_guide_s_plugin_config_as_launched(alone, tmp_path):  # noqa: F811
    settings = {"zero_stage": 2, "offload_optimizer_device": "none", "offload_param_device": "none"}
    config = new("deepspeed-plugin", mixed_precision="no", gradient_accumulation_steps=2, num_processes=2,
                 gradient_clipping=0.5, zero3_init_flag=False, **settings)  # fmt: skip
    folder = tmp_path / "two"
    said = accelerate(config, folder)
    check_equal(alone, said, folder, "bert")
    assert said["first"]["wrapper"] == "DeepSpeedEngine"
