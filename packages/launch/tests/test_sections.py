"""Configs for other devices and with every section, as accelerate's own questions write them: kept whole, and explained."""

import pytest

from mudarrib.launch import check, dump, explain, parse

HEAD = """\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: {kind}
downcast_bf16: 'no'
enable_cpu_affinity: false
{more}machine_rank: 0
main_training_function: main
mixed_precision: {precision}
num_machines: {machines}
num_processes: {processes}
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: {cpu}
"""


def file(kind, more="", precision="bf16", processes=8, machines=1, cpu="false"):
    return HEAD.format(kind=kind, more=more, precision=precision, processes=processes, machines=machines, cpu=cpu)


FSDP2 = """\
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_version: 2
"""
DYNAMO = """\
dynamo_config:
  dynamo_backend: INDUCTOR
  dynamo_mode: max-autotune
  dynamo_use_dynamic: true
  dynamo_use_fullgraph: false
  dynamo_use_regional_compilation: true
"""
TE = """\
fp8_config:
  amax_compute_algorithm: most_recent
  amax_history_length: 1024
  backend: TE
  fp8_format: HYBRID
  interval: 1
  margin: 0
  override_linear_precision:
  - false
  - false
  - false
  use_autocast_during_eval: false
"""
ZERO = """\
deepspeed_config:
  gradient_accumulation_steps: 1
  gradient_clipping: 1.0
  offload_optimizer_device: cpu
  offload_param_device: none
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
"""


def parallel(**sizes):
    return "parallelism_config:\n" + "".join(f"  parallelism_config_{key}: {value}\n" for key, value in sizes.items())


POD = file("XLA", processes=32).replace(
    "tpu_env: []\ntpu_use_cluster: false\n",
    "tpu_env:\n- XLA_USE_SPMD=1\ntpu_name: pod-of-32\ntpu_use_cluster: true\ntpu_zone: europe-west4-a\ntpu_vm: []\n"
    "commands:\n- 'cd /srv && pip install -e .'\n",
)
MEGATRON = """\
megatron_lm_config:
  megatron_lm_gradient_clipping: 1.0
  megatron_lm_num_micro_batches: 4
  megatron_lm_pp_degree: 2
  megatron_lm_recompute_activations: true
  megatron_lm_sequence_parallelism: true
  megatron_lm_tp_degree: 4
  megatron_lm_use_distributed_optimizer: true
"""
MPI = "main_process_ip: 10.0.0.1\nmain_process_port: 29500\nmpirun_config:\n  mpirun_hostfile: /srv/hosts\n"
# Name, the file, what is said of it.
FILES = {
    "dynamo": (file("MULTI_GPU", DYNAMO), ["compiled with INDUCTOR (in mode max-autotune, for sizes that change, one layer"]),
    "old dynamo": (file("'NO'", "dynamo_backend: EAGER\n", processes=1), ["One plain process", "compiled with EAGER."]),
    "no dynamo": (file("'NO'", "dynamo_config: {dynamo_backend: 'NO'}\n", processes=1), ["One plain process"]),
    "fp8 TE": (file("MULTI_GPU", TE, "fp8"), ["8 processes, each", "multiplied in 8 bits, by Transformer Engine"]),
    "fp8 MSAMP": (file("MULTI_GPU", "fp8_config: {backend: MSAMP, optimization_level: O2}\n", "fp8"), ["by MS-AMP"]),
    "fp8 AO": (
        file("FSDP", FSDP2 + "fp8_config:\n  backend: AO\n  enable_fsdp_float8_all_gather: true\n  pad_inner_dim: true\n", "fp8"),
        ["sharing one model (FSDP 2)", "by torchao", "computed anew in backward", "saves its own part"],
    ),
    "tp and dp": (
        file("FSDP", FSDP2 + parallel(dp_replicate_size=2, dp_shard_size=2, tp_size=2)),
        ["2 copies of what is split", "split over 2 processes with other rows", "matrices are split over 2"],
    ),
    "cp": (
        file("FSDP", FSDP2 + parallel(dp_replicate_size=1, dp_shard_size=2, tp_size=1, cp_size=4, cp_comm_strategy="alltoall")),
        ["tokens are split over 4 processes (context parallel)"],
    ),
    "sp": (
        file("DEEPSPEED", ZERO + parallel(sp_size=8, sp_backend="deepspeed", sp_seq_length_is_variable="true")),
        ["ZeRO stage 3", "Optimizer states wait on cpu", "tokens are split over 8 processes (sequence parallel)"],
    ),
    "hybrid": (
        file("FSDP", "fsdp_config:\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_min_num_params: 1000000\n"
             "  fsdp_sharding_strategy: HYBRID_SHARD\n  fsdp_state_dict_type: 1\n  fsdp_backward_prefetch: 2\n", processes=2),
        ["from 1000000 parameters on", "inside each machine", "one file"],
    ),
    "megatron": (file("MEGATRON_LM", MEGATRON), ["under Megatron-LM", "split over 4", "over 2 processes (pipeline)"]),
    "tpu": (file("XLA"), ["8 processes", "one TPU each"]),
    "tpu pod": (POD, ["32 processes", "pod-of-32 in europe-west4-a"]),
    "npu": (file("MULTI_NPU", "gpu_ids: all\n", "fp16"), ["one NPU each", "fp16"]),
    "xpu": (file("MULTI_XPU", "gpu_ids: all\n", processes=2), ["2 processes", "one XPU each"]),
    "hpu": (file("MULTI_HPU"), ["one HPU each"]),
    "mps": (file("'NO'", precision="'no'", processes=1), ["One plain process, on an accelerator, if there is one"]),
    "some gpus": (file("MULTI_GPU", "gpu_ids: 2,3\n", processes=2), ["They use the devices 2,3 of this machine"]),
    "mpi": (
        file("MULTI_CPU", MPI, processes=4, machines=2, cpu="true"),
        ["on the CPU", "mpirun starts them on the machines that /srv/hosts names"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_kept_whole_raises_no_alarm_and_is_explained(name):
    text, words = FILES[name]
    config = parse(text)
    again = parse(dump(config))
    assert again.values == config.values and list(again.values) == list(config.values)
    assert [finding.code for finding in check(config) if finding.code != "F014"] == []
    said = explain(config)
    for word in words:
        assert word in said, said
    assert "{" not in said and "None" not in said


def test_what_only_deepspeeds_file_knows_is_not_guessed():
    said = explain(
        parse("distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {deepspeed_config_file: d.json}\n")
    )
    assert "float32" not in said and "d.json" in said
    said = explain(parse("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2, offload_param_device: cpu}\n"))
    assert "do not wait on cpu" in said and "as many processes as there are devices" in said


@pytest.mark.parametrize("strange", ["num_processes: [1]", "fsdp_config: 3", "machine_rank: {}", "mixed_precision: 1"])
@pytest.mark.parametrize("kind", ["FSDP", "DEEPSPEED", "MULTI_GPU", "{a: 1}", "[]"])
def test_what_makes_no_sense_is_explained_without_a_traceback(kind, strange):
    config = parse(f"distributed_type: {kind}\n{strange}\ndeepspeed_config: {{zero_stage: [1]}}\n")
    assert explain(config) and check(config)
