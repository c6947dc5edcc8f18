"""The keys that accelerate 1.x reads from a config for LOCAL_MACHINE, and their known values."""

from __future__ import annotations

TYPES = (
    "NO", "MULTI_CPU", "MULTI_GPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU", "MULTI_HPU",
    "MULTI_NEURON", "DEEPSPEED", "FSDP", "XLA", "MEGATRON_LM"
)  # fmt: skip
PRECISIONS = ("no", "fp16", "bf16", "fp8")
DYNAMO = (
    "NO", "EAGER", "AOT_EAGER", "INDUCTOR", "AOT_TS_NVFUSER", "NVPRIMS_NVFUSER", "CUDAGRAPHS", "OFI", "FX2TRT",
    "ONNXRT", "TENSORRT", "AOT_TORCHXLA_TRACE_ONCE", "TORCHXLA_TRACE_ONCE", "TVM", "HPU_BACKEND", "NEURON",
)  # fmt: skip
BACKENDS = ("static", "c10d", "etcd", "etcd-v2")

COMMON = (
    "compute_environment", "debug", "distributed_type", "downcast_bf16", "dynamo_config", "deepspeed_config",
    "enable_cpu_affinity", "fp16", "fp8_config", "fsdp_config", "gpu_ids", "ipex_config", "machine_rank",
    "main_process_ip", "main_process_port", "main_training_function", "megatron_lm_config", "mixed_precision",
    "mpirun_config", "num_machines", "num_processes", "parallelism_config", "rdzv_backend", "same_network", "tp_config",
    "commands", "command_file", "tpu_env", "tpu_name", "tpu_zone", "tpu_use_cluster", "tpu_use_sudo", "tpu_vm",
    "use_cpu", "dynamo_backend", "mpirun_hostfile", "mpirun_ccl",
)  # fmt: skip

FSDP = (
    "fsdp_activation_checkpointing", "fsdp_auto_wrap_policy", "fsdp_backward_prefetch",
    "fsdp_backward_prefetch_policy", "fsdp_cpu_ram_efficient_loading", "fsdp_forward_prefetch", "fsdp_ignored_modules",
    "fsdp_min_num_params", "fsdp_offload_params", "fsdp_reshard_after_forward", "fsdp_sharding_strategy",
    "fsdp_state_dict_type", "fsdp_sync_module_states", "fsdp_transformer_layer_cls_to_wrap", "fsdp_use_orig_params",
    "fsdp_version",
)  # fmt: skip
FSDP1_ONLY = (
    "fsdp_backward_prefetch", "fsdp_backward_prefetch_policy", "fsdp_forward_prefetch", "fsdp_sharding_strategy",
    "fsdp_sync_module_states", "fsdp_use_orig_params",
)  # fmt: skip
SHARDING = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
WRAPPING = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")
PREFETCH = ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH")
STATE_DICTS = ("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT")

DEEPSPEED = (
    "deepspeed_config_file", "deepspeed_exclusion_filter", "deepspeed_hostfile", "deepspeed_inclusion_filter",
    "deepspeed_moe_layer_cls_names", "deepspeed_multinode_launcher", "gradient_accumulation_steps",
    "gradient_clipping", "offload_optimizer_device", "offload_optimizer_nvme_path", "offload_param_device",
    "offload_param_nvme_path", "zero3_init_flag", "zero3_save_16bit_model", "zero_stage",
)  # fmt: skip
WITH_FILE = (
    "deepspeed_config_file", "deepspeed_exclusion_filter", "deepspeed_hostfile", "deepspeed_inclusion_filter",
    "deepspeed_moe_layer_cls_names", "deepspeed_multinode_launcher", "zero3_init_flag",
)  # fmt: skip
DEVICES = ("none", "cpu", "nvme")
SECTIONS = {"fsdp_config": FSDP, "deepspeed_config": DEEPSPEED}
