"""Files as people write them, each wrong in one way: what accelerate 1.15 makes of each, and the rule that catches it."""

import pytest

from mudarrib.launch import ConfigError, check, parse, read
from mudarrib.launch.context import Context, Here, ModelFacts

DDP = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
downcast_bf16: 'no'
gpu_ids: all
machine_rank: 0
main_process_ip: 192.168.1.10
main_process_port: 29500
main_training_function: main
mixed_precision: bf16
num_machines: 2
num_processes: 8
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
"""
CPU = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
num_machines: 1
num_processes: 2
machine_rank: 0
main_process_port: 29611
mixed_precision: 'no'
use_cpu: true
"""
FSDP = """\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_forward_prefetch: false
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_transformer_layer_cls_to_wrap: BertLayer
  fsdp_use_orig_params: true
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
"""
FSDP2 = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_machines: 1
num_processes: 2
machine_rank: 0
main_process_port: 29622
mixed_precision: 'no'
use_cpu: false
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: BertLayer
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_offload_params: false
  fsdp_cpu_ram_efficient_loading: false
  fsdp_reshard_after_forward: true
"""
FILE = """\
compute_environment: LOCAL_MACHINE
deepspeed_config:
  deepspeed_config_file: ds_z2.json
  zero3_init_flag: true
distributed_type: DEEPSPEED
fsdp_config: {}
machine_rank: 0
main_process_ip: null
main_process_port: null
main_training_function: main
num_machines: 1
num_processes: 2
use_cpu: false
"""
PLUGIN = """\
compute_environment: LOCAL_MACHINE
deepspeed_config:
  gradient_accumulation_steps: 1
  gradient_clipping: 0.7
  offload_optimizer_device: cpu
  offload_param_device: cpu
  zero3_init_flag: true
  zero_stage: 2
distributed_type: DEEPSPEED
fsdp_config: {}
machine_rank: 0
main_process_ip: null
main_process_port: null
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
use_cpu: false
"""
BERT = ModelFacts("bert", ("BertSelfOutput", "BertLayer", "BertModel"), ("BertLayer",))
RIGHT = {"ddp": DDP, "cpu": CPU, "fsdp": FSDP, "fsdp2": FSDP2, "plugin": PLUGIN}

# File, what is written in it, what is written instead, the rule.
WRONG = [
    # Refused by its loader, with no right key or value named.
    (DDP, "num_processes", "num_proceses", "K001"),
    (FSDP, "fsdp_config:", "fsdp:", "K001"),
    (DDP, "distributed_type: MULTI_GPU\n", "", "K003"),
    (FSDP, "type: FSDP", "type: FSDP2", "K004"),
    (FSDP, "type: FSDP", "type: fsdp", "K004"),
    (DDP, "MULTI_GPU", "DDP", "K004"),
    (FSDP, "LOCAL_MACHINE", "LOCAL", "K007"),
    # Taken by its loader without a word; some stop the launch later, some never.
    (FSDP, "mixed_precision: bf16", "mixed_precision: fp17", "P002"),
    (CPU, "mixed_precision: 'no'", "mixed_precision: no", "P001"),
    (DDP, "num_processes: 8", "num_processes: '2'", "M001"),
    (DDP, "num_processes: 8", "num_processes: 0", "M001"),
    (DDP, "num_processes: 8", "num_processes: -3", "M001"),
    (FSDP, "num_processes: 2\n", "", "M003"),
    (FSDP, "fsdp_transformer_layer", "fsdp_transfomer_layer", "K002"),
    (FSDP, "FULL_SHARD", "9", "F001"),
    (FSDP, "machine_rank: 0", "machine_rank: 5", "M005"),
    (DDP, "machine_rank: 0", "machine_rank: 5", "M005"),
    (FSDP.replace("  fsdp_", "  # fsdp_"), "fsdp_config:", "fsdp_config: [a]", "K005"),
    (FSDP, "debug: false", "deepspeed_config: {zero_stage: 5}", "K006"),
    (DDP, "gpu_ids: all", "dynamo_backend: XX", "K010"),
    (DDP, "port: 29500", "port: abc", "M007"),
    (DDP, "static", "foo", "K008"),
    (DDP, "mixed_precision: bf16", "fp16: true", "K009"),
    # What it starts is not what is asked for.
    (CPU, "MULTI_GPU", "MULTI_CPU", "M009"),
    (CPU, "MULTI_GPU", "'NO'", "M010"),
    (FSDP2, "use_cpu: false", "use_cpu: true", "F010"),
    (FSDP, "use_cpu: false", "use_cpu: true", "F015"),
    (CPU, "num_processes: 2", "num_processes: 1", "M008"),
    (CPU, "precision: 'no'", "precision: fp16", "P003"),
    # It waits for machines that never come, without one line of output.
    (DDP, "num_processes: 8", "num_processes: 3", "M004"),
    (DDP, "192.168.1.10", "127.0.0.1", "M006"),
    # Each process fails after its imports, after half a minute, with a traceback each.
    (FSDP2, "TRANSFORMER_BASED_WRAP", "FOO", "F002"),
    (FSDP2, "FULL_STATE_DICT", "FOO", "F003"),
    (FSDP2, "fsdp_transformer_layer", "fsdp_transfomer_layer", "K002"),
    (FSDP2, "BertLayer", "BretLayer", "L001"),
    (FSDP, "BertLayer", "BretLayer", "L001"),
    (FSDP, "sync_module_states: true", "sync_module_states: false", "F011"),
    (FILE, "ds_z2.json", "nope.json", "D006"),
    (PLUGIN, "zero_stage: 2", "zero_stage: 5", "D001"),
    (PLUGIN, "zero_stage: 2", "zero_stage: 7", "D001"),
    (PLUGIN, "offload_param_device", "offload_param_devise", "K002"),
    (FILE, "zero3_init", "gradient_clipping: 1.0\n  zero3_init", "D004"),
    (FILE, "num_machines: 1", "mixed_precision: bf16\nnum_machines: 1", "D005"),
]


@pytest.mark.parametrize(
    ("text", "right", "wrong", "code"), WRONG, ids=[f"{code}-{wrong.strip() or right}" for _, right, wrong, code in WRONG]
)  # fmt: skip
def test_each_wrong_file_is_caught_by_its_rule_where_it_is_wrong(tmp_path, text, right, wrong, code):
    assert right in text
    path = tmp_path / "c.yaml"
    path.write_text(text.replace(right, wrong, 1))
    config = read(path)
    config.context = Context(model=BERT)
    found = {finding.code: finding for finding in check(config)}
    assert code in found, sorted(found)
    finding = found[code]
    assert finding.message and finding.consequence and finding.fix
    if finding.place:
        line = path.read_text().splitlines()[finding.place[0] - 1]
        assert line[finding.place[1] - 1 :].startswith(finding.key.rpartition(".")[2])


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_the_same_files_unchanged_are_right(tmp_path, name):
    path = tmp_path / "c.yaml"
    path.write_text(RIGHT[name])
    config = read(path)
    config.context = Context(model=BERT)
    assert [finding.code for finding in check(config) if finding.code != "F014"] == []


def test_a_file_for_deepspeed_is_right_beside_its_json(tmp_path):
    (tmp_path / "c.yaml").write_text(FILE)
    (tmp_path / "ds_z2.json").write_text('{"zero_optimization": {"stage": 2}}')
    assert check(read(tmp_path / "c.yaml")) == []


@pytest.mark.parametrize(
    ("text", "here", "code"),
    [
        (PLUGIN, Here(True), "H001"),
        (DDP.replace("num_machines: 2", "num_machines: 1"), Here(False), "H002"),
        (FSDP, Here(True, flags=("--cpu",)), "H003"),
        (PLUGIN, Here(True, ("deepspeed",), ("--cpu", "--num_processes", "2")), "H003"),
    ],
)
def test_what_only_the_launching_machine_can_tell(text, here, code):
    config = parse(text)
    config.context = Context(here=here)
    assert code in {finding.code for finding in check(config)}


@pytest.mark.parametrize(
    "wrong",
    ["", "\n# nothing\n", "compute_environment: LOCAL_MACHINE\n\tuse_cpu: true\n", "- distributed_type\n", "FSDP\n"],
)
def test_a_file_that_is_no_config_is_said_to_be_none(wrong):
    with pytest.raises(ConfigError) as told:
        parse(wrong)
    assert "\n" not in str(told.value)
