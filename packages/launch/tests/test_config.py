"""Reading, writing, making, explaining, and the command line."""

import contextlib
import json
import os
import pty
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudarrib.launch import Config, ConfigError, dump, explain, new, parse, read
from mudarrib.launch.cli import main

VALUES = st.none() | st.booleans() | st.integers(-9, 99999) | st.text(max_size=12) | st.floats(0, 9)


@given(st.dictionaries(st.text(min_size=1, max_size=9), VALUES | st.dictionaries(st.text(min_size=1), VALUES)))
def test_what_is_written_reads_back_the_same(values):
    if values:
        assert parse(dump(Config(values))).values == values


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "empty"), ("- a\n- b\n", "list"), ("a: 1\n\tb: 2\n", "line 2, column 1"), ("a: [1\n", "line")],
)
def test_what_cannot_be_read_is_said(text, said):
    with pytest.raises(ConfigError, match=said):
        parse(text)


def test_G27_the_guides_ddp_config():
    assert new("ddp").values.items() >= {
        "compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU", "downcast_bf16": "no",
        "gpu_ids": "all", "machine_rank": 0, "main_training_function": "main", "mixed_precision": "fp16",
        "num_machines": 2, "num_processes": 8, "rdzv_backend": "static", "same_network": True,
        "tpu_use_cluster": False, "tpu_use_sudo": False, "use_cpu": False,
    }.items()  # fmt: skip
    assert {"main_process_ip", "main_process_port", "tpu_env"} <= set(new("ddp").values)


def test_G28_the_guides_fsdp_config():
    config = new("fsdp")
    assert (config.kind, config.get("mixed_precision"), config.get("num_processes")) == ("FSDP", "bf16", 2)
    assert config.section("fsdp_config") == {
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_backward_prefetch_policy": "BACKWARD_PRE",
        "fsdp_forward_prefetch": False, "fsdp_cpu_ram_efficient_loading": True, "fsdp_offload_params": False,
        "fsdp_sharding_strategy": "FULL_SHARD", "fsdp_state_dict_type": "FULL_STATE_DICT",
        "fsdp_sync_module_states": True, "fsdp_transformer_layer_cls_to_wrap": "BertLayer", "fsdp_use_orig_params": True,
    }  # fmt: skip


def test_G29_G30_the_guides_deepspeed_configs():
    config = new("deepspeed")
    assert config.get("num_processes") == 4
    assert config.section("deepspeed_config") == {"deepspeed_config_file": "ds_config.json", "zero3_init_flag": True}
    assert new("deepspeed-plugin").section("deepspeed_config") == {
        "gradient_accumulation_steps": 1, "gradient_clipping": 0.7, "offload_optimizer_device": "cpu",
        "offload_param_device": "cpu", "zero3_init_flag": True, "zero_stage": 2,
    }  # fmt: skip


def test_other_values_go_where_they_belong():
    config = new("fsdp2", num_processes=8, fsdp_transformer_layer_cls_to_wrap="LlamaDecoderLayer")
    assert config.get("num_processes") == 8
    assert config.get("fsdp_config.fsdp_transformer_layer_cls_to_wrap") == "LlamaDecoderLayer"
    with pytest.raises(ConfigError, match="no such key"):
        new("ddp", fsdp_version=2)
    with pytest.raises(ConfigError, match="no such key"):
        new("deepspeed-plugin", fsdp_version=2)
    with pytest.raises(ConfigError, match="no such key"):
        new("fsdp2", fsdp_offload_parms=True)
    with pytest.raises(ConfigError, match="deepspeed-plugin"):
        new("deep")


@pytest.mark.parametrize(
    ("kind", "said", "key", "value"),
    [
        ("cpu", "distributed_type=NO", "distributed_type", "NO"),
        ("cpu", "distributed_type='NO'", "distributed_type", "NO"),
        ("ddp", "mixed_precision=no", "mixed_precision", "no"),
        ("ddp", "downcast_bf16=no", "downcast_bf16", "no"),
        ("ddp", "downcast_bf16=yes", "downcast_bf16", "yes"),
        ("ddp", "main_training_function=on", "main_training_function", "on"),
        ("ddp", "main_process_ip=10:20", "main_process_ip", "10:20"),
        ("ddp", "gpu_ids=0", "gpu_ids", "0"),
        ("ddp", "gpu_ids=0,1", "gpu_ids", "0,1"),
        ("ddp", "num_processes=4", "num_processes", 4),
        ("ddp", "num_processes=yes", "num_processes", "yes"),
        ("ddp", "same_network=off", "same_network", False),
        ("ddp", "use_cpu=yes", "use_cpu", True),
        ("ddp", "tpu_env=[A=1, B=2]", "tpu_env", ["A=1", "B=2"]),
        ("fsdp", "fsdp_sharding_strategy=1", "fsdp_config.fsdp_sharding_strategy", 1),
        ("fsdp", "fsdp_sharding_strategy=NO_SHARD", "fsdp_config.fsdp_sharding_strategy", "NO_SHARD"),
        ("fsdp", "fsdp_auto_wrap_policy=NO", "fsdp_config.fsdp_auto_wrap_policy", "NO"),
        ("fsdp", "fsdp_transformer_layer_cls_to_wrap=1e3", "fsdp_config.fsdp_transformer_layer_cls_to_wrap", "1e3"),
        ("fsdp", "fsdp_offload_params=no", "fsdp_config.fsdp_offload_params", False),
        ("fsdp2", "fsdp_reshard_after_forward=no", "fsdp_config.fsdp_reshard_after_forward", False),
        ("deepspeed-plugin", "offload_param_device=none", "deepspeed_config.offload_param_device", "none"),
        ("deepspeed-plugin", "gradient_clipping=0.5", "deepspeed_config.gradient_clipping", 0.5),
        ("deepspeed-plugin", "gradient_accumulation_steps=auto", "deepspeed_config.gradient_accumulation_steps", "auto"),
        ("deepspeed", "deepspeed_config_file=[a", "deepspeed_config.deepspeed_config_file", "[a"),
    ],
)  # fmt: skip
def test_a_word_on_the_command_line_stays_a_word(tmp_path, kind, said, key, value):
    path = tmp_path / "c.yaml"
    assert main(["new", kind, said, "-o", str(path)]) == 0
    found = read(path).get(key)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("said", ["num_processes=", "use_cpu=[", "=4"])
def test_nothing_is_no_value(tmp_path, capsys, said):
    assert main(["new", "ddp", said, "-o", str(tmp_path / "c.yaml")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_plain_words():
    assert "8 processes" in explain(new("ddp")) and "192.168.20.1:9898" in explain(new("ddp"))
    assert "BertLayer" in explain(new("fsdp"))
    assert "ds_config.json" in explain(new("deepspeed")) and "stage 2" in explain(new("deepspeed-plugin"))


def test_new_check_fix_and_exit_codes(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    assert main(["new", "ddp", "-o", str(path), "--yes", "num_processes=7"]) == 0
    assert main(["new", "ddp", "-o", str(path)]) == 2
    assert main(["check", str(path)]) == 1
    assert "M004" in capsys.readouterr().out
    assert main(["new", "cpu", "mixed_precision=fp16", "-o", str(path), "--yes"]) == 0
    capsys.readouterr()
    assert main(["check", str(path), "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)
    assert finding["code"] == "P003" and finding["place"]
    assert main(["check", str(path), "--fix"]) == 0
    assert "mixed_precision: bf16" in path.read_text()
    assert main(["check", str(tmp_path / "nowhere.yaml")]) == 2
    assert main(["explain", str(path)]) == 0


def test_nothing_heavy_is_loaded():
    code = "import sys\nfrom mudarrib.launch.cli import main\nmain(['new', 'fsdp', '-o', '-'])\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "accelerate", "transformers", "numpy"} & set(done.stdout.split())


def test_a_mend_changes_what_is_wrong_and_nothing_else(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text(
        "# my note\ndistributed_type: fsdp   # why\nnum_processes: '8'  # eight\nmixed_precison: bf16\nmachine_rank: 0\n"
        "fsdp_config:\n  fsdp_version: 2\n  fsdp_state_dict_typ: FULL_STATE_DICT # whole\n  fsdp_offload_params: 'false'\n"
    )
    assert main(["check", str(path), "--fix"]) == 0, capsys.readouterr().out
    assert path.read_text() == (
        "# my note\ndistributed_type: FSDP   # why\nnum_processes: 8  # eight\nmixed_precision: bf16\nmachine_rank: 0\n"
        "fsdp_config:\n  fsdp_version: 2\n  fsdp_state_dict_type: FULL_STATE_DICT # whole\n  fsdp_offload_params: false\n"
    )
    assert [item.name for item in tmp_path.iterdir()] == ["c.yaml"]


def test_what_is_left_after_a_mend_keeps_its_place(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text("distributed_type: MULTI_GPU\nuse_cpu: 'true'\nnum_processes: 0\n")
    assert main(["check", str(path), "--fix"]) == 1
    assert f"{path}:3:1: M001" in capsys.readouterr().out
    assert "use_cpu: true\n" in path.read_text()


OLD = """\
# ours, since 2023
distributed_type: FSDP
num_processes: 2   # both cards
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch_policy: BACKWARD_PRE  # overlaps
  fsdp_forward_prefetch: false
  fsdp_sharding_strategy: 1   # all
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_use_orig_params: true
"""
NEW = """\
# ours, since 2023
distributed_type: FSDP
num_processes: 2   # both cards
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: true   # all
  fsdp_state_dict_type: FULL_STATE_DICT
"""


def test_fix_moves_fsdp_1_to_2_and_keeps_the_notes(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text(OLD)
    assert main(["check", str(path)]) == 0, "version 1 runs"
    assert "F014" in capsys.readouterr().out
    assert main(["check", str(path), "--fix"]) == 0
    assert path.read_text() == NEW
    assert "nothing wrong" in capsys.readouterr().out


def test_what_has_no_successor_is_not_moved(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text(OLD.replace("strategy: 1 ", "strategy: NO_SHARD "))
    assert main(["check", str(path), "--fix", "--accelerate-version", "0.34.2"]) == 0
    assert path.read_text() == OLD.replace("strategy: 1 ", "strategy: NO_SHARD ")


def test_fix_moves_old_keys(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text("distributed_type: MULTI_GPU\nnum_processes: 2\nfp16: true\n")
    assert main(["check", str(path), "--fix"]) == 0, capsys.readouterr().out
    assert path.read_text() == "mixed_precision: fp16\ndistributed_type: MULTI_GPU\nnum_processes: 2\n"


def test_words_are_put_in_quotes_as_they_were_written(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text(
        "distributed_type: NO\nmixed_precision: no # half\ndynamo_config: {backend: NO}\nmain_training_function: On\n"
        "downcast_bf16: no\ngpu_ids: 0\n"
    )
    assert main(["check", str(path)]) == 1
    assert main(["check", str(path), "--fix"]) == 0, capsys.readouterr().out
    assert path.read_text() == (
        "distributed_type: 'NO'\nmixed_precision: 'no' # half\ndynamo_config: {dynamo_backend: 'NO'}\n"
        "main_training_function: 'On'\ndowncast_bf16: no\ngpu_ids: '0'\n"
    )


def test_a_section_in_braces_is_mended_too(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text("distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_reshard_after_forward: true}\n")
    assert main(["check", str(path), "--fix"]) == 0, capsys.readouterr().out
    assert "fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true}" in path.read_text()


def test_a_check_against_a_model_and_arguments(tmp_path, capsys):
    path, model, training = tmp_path / "c.yaml", tmp_path / "config.json", tmp_path / "training.json"
    assert main(["new", "fsdp2", "-o", str(path), "fsdp_transformer_layer_cls_to_wrap=BretLayer"]) == 0
    model.write_text(json.dumps({"model_type": "bert", "architectures": ["BertModel"]}))
    training.write_text(json.dumps({"fp16": True, "bf16": False}))
    capsys.readouterr()
    assert main(["check", str(path), "--args", str(training)]) == 1
    assert "T003" in capsys.readouterr().out
    training.write_text("[1]")
    assert main(["check", str(path), "--args", str(training)]) == 2
    assert "--args" in capsys.readouterr().err
    assert main(["check", str(path), "--model", str(tmp_path / "no")]) == 2
    assert "--model" in capsys.readouterr().err


def on_a_terminal(arguments, typed):
    """Run the command on a pseudo-terminal, type, and return what it showed."""
    code = f"from mudarrib.launch.cli import main; raise SystemExit(main({arguments!r}))"
    main_end, its_end = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", code], stdin=its_end, stdout=its_end, stderr=its_end)
    os.close(its_end)
    os.write(main_end, typed.encode())
    shown = b""
    with contextlib.suppress(OSError):
        while part := os.read(main_end, 4096):
            shown += part
    os.close(main_end)
    assert process.wait(20) == 0, shown.decode()
    return shown.decode()


def test_new_asks_only_for_what_it_cannot_know(tmp_path):
    path = tmp_path / "c.yaml"
    shown = on_a_terminal(["new", "fsdp2", "-o", str(path)], "4\nLlamaDecoderLayer\n")
    assert "How many processes" in shown and "Class of the model's layers [BertLayer]" in shown
    written = read(path)
    assert written.get("num_processes") == 4
    assert written.get("fsdp_config.fsdp_transformer_layer_cls_to_wrap") == "LlamaDecoderLayer"
    shown = on_a_terminal(["new", "ddp", "-o", str(tmp_path / "d.yaml"), "num_machines=1", "num_processes=2"], "\n")
    assert "Address" not in shown and "Number of this machine" not in shown, "one machine has none to meet"
    assert on_a_terminal(["new", "ddp", "-o", str(path), "--yes"], "").strip() == str(path), "asks nothing"
