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
DYNAMO_KEYS = (
    "dynamo_backend", "dynamo_mode", "dynamo_use_dynamic", "dynamo_use_fullgraph", "dynamo_use_regional_compilation",
)  # fmt: skip
FP8 = (
    "backend", "use_autocast_during_eval", "margin", "interval", "fp8_format", "amax_history_length",
    "amax_history_len", "amax_compute_algorithm", "amax_compute_algo", "override_linear_precision",
    "optimization_level", "opt_level", "enable_fsdp_float8_all_gather", "pad_inner_dim", "fp8_backend",
    "fp8_use_autocast_during_eval", "fp8_margin", "fp8_interval", "fp8_amax_history_length", "fp8_amax_history_len",
    "fp8_amax_compute_algorithm", "fp8_amax_compute_algo", "fp8_override_linear_precision", "fp8_optimization_level",
    "fp8_opt_level", "fp8_enable_fsdp_float8_all_gather", "fp8_pad_inner_dim",
)  # fmt: skip
PARALLELISM = (
    "parallelism_config_dp_replicate_size", "parallelism_config_dp_shard_size", "parallelism_config_tp_size",
    "parallelism_config_cp_size", "parallelism_config_cp_backend", "parallelism_config_cp_comm_strategy",
    "parallelism_config_sp_size", "parallelism_config_sp_backend", "parallelism_config_sp_seq_length",
    "parallelism_config_sp_seq_length_is_variable", "parallelism_config_sp_attn_implementation",
)  # fmt: skip
PARALLEL_SIZES = tuple(key for key in PARALLELISM if key.endswith("_size"))
FP8_BACKENDS = ("TE", "MSAMP", "AO")
MEGATRON = (
    "megatron_lm_attention_backend", "megatron_lm_attention_dropout", "megatron_lm_attention_softmax_in_fp32",
    "megatron_lm_calculate_per_token_loss", "megatron_lm_context_parallel_size",
    "megatron_lm_decoder_last_pipeline_num_layers", "megatron_lm_eod_mask_loss",
    "megatron_lm_expert_model_parallel_size", "megatron_lm_expert_tensor_parallel_size",
    "megatron_lm_gradient_clipping", "megatron_lm_hidden_dropout", "megatron_lm_no_load_optim",
    "megatron_lm_no_save_optim", "megatron_lm_num_micro_batches", "megatron_lm_optimizer_cpu_offload",
    "megatron_lm_overlap_cpu_optimizer_d2h_h2d", "megatron_lm_pp_degree", "megatron_lm_recompute_activations",
    "megatron_lm_recompute_granularity", "megatron_lm_recompute_method", "megatron_lm_recompute_num_layers",
    "megatron_lm_sequence_parallelism", "megatron_lm_tp_degree", "megatron_lm_use_custom_fsdp",
    "megatron_lm_use_distributed_optimizer", "megatron_lm_use_precision_aware_optimizer",
    "megatron_lm_use_rotary_position_embeddings",
)  # fmt: skip
SECTIONS: dict[str, tuple[str, ...]] = {
    "fsdp_config": FSDP,
    "deepspeed_config": DEEPSPEED,
    "dynamo_config": DYNAMO_KEYS,
    "fp8_config": FP8,
    "parallelism_config": PARALLELISM,
    "mpirun_config": ("mpirun_hostfile", "mpirun_ccl"),
    "megatron_lm_config": MEGATRON,
}

# What a key's value is, by its own name whichever section it stands in; every other key holds a word or a text.
SWITCHES = (
    "debug", "dynamo_use_dynamic", "dynamo_use_fullgraph", "dynamo_use_regional_compilation", "enable_cpu_affinity",
    "enable_fsdp_float8_all_gather", "fp16", "fp8_enable_fsdp_float8_all_gather", "fp8_pad_inner_dim",
    "fp8_use_autocast_during_eval", "fsdp_activation_checkpointing", "fsdp_cpu_ram_efficient_loading",
    "fsdp_forward_prefetch", "fsdp_offload_params", "fsdp_reshard_after_forward", "fsdp_sync_module_states",
    "fsdp_use_orig_params", "megatron_lm_attention_softmax_in_fp32", "megatron_lm_calculate_per_token_loss",
    "megatron_lm_eod_mask_loss", "megatron_lm_no_load_optim", "megatron_lm_no_save_optim",
    "megatron_lm_optimizer_cpu_offload", "megatron_lm_overlap_cpu_optimizer_d2h_h2d",
    "megatron_lm_recompute_activations", "megatron_lm_sequence_parallelism", "megatron_lm_use_custom_fsdp",
    "megatron_lm_use_distributed_optimizer", "megatron_lm_use_precision_aware_optimizer",
    "megatron_lm_use_rotary_position_embeddings", "pad_inner_dim", "parallelism_config_sp_seq_length_is_variable",
    "same_network", "tpu_use_cluster", "tpu_use_sudo", "use_autocast_during_eval", "use_cpu", "zero3_init_flag",
    "zero3_save_16bit_model",
)  # fmt: skip
NUMBERS = (
    "amax_history_len", "amax_history_length", "fp8_amax_history_len", "fp8_amax_history_length", "fp8_interval",
    "fp8_margin", "fsdp_min_num_params", "fsdp_sharding_strategy", "fsdp_version", "gradient_accumulation_steps",
    "gradient_clipping", "interval", "machine_rank", "main_process_port", "margin", "megatron_lm_attention_dropout",
    "megatron_lm_context_parallel_size", "megatron_lm_decoder_last_pipeline_num_layers",
    "megatron_lm_expert_model_parallel_size", "megatron_lm_expert_tensor_parallel_size",
    "megatron_lm_gradient_clipping", "megatron_lm_hidden_dropout", "megatron_lm_num_micro_batches",
    "megatron_lm_pp_degree", "megatron_lm_recompute_num_layers", "megatron_lm_tp_degree", "mpirun_ccl", "num_machines",
    "num_processes", *PARALLEL_SIZES, "parallelism_config_sp_seq_length", "zero_stage",
)  # fmt: skip
LISTS = ("commands", "fp8_override_linear_precision", "override_linear_precision", "tpu_env", "tpu_vm")

# From which to which version accelerate launch reads a key; counted in its releases from 0.20.3 to 1.15.0.
SINCE = {
    "parallelism_config": "1.10.0",
    "fsdp_config.fsdp_version": "1.6.0",
    "fsdp_config.fsdp_reshard_after_forward": "1.6.0",
    "fsdp_config.fsdp_ignored_modules": "1.10.0",
}
UNTIL = {
    "ipex_config": "1.12.0",
    "tp_config": "1.6.0",
    "mpirun_config.mpirun_ccl": "1.12.0",
    "fsdp_config.fsdp_backward_prefetch_policy": "0.34.2",
}
SUCCESSORS = {
    "tp_config": "parallelism_config",
    "fsdp_config.fsdp_backward_prefetch_policy": "fsdp_backward_prefetch",
}
