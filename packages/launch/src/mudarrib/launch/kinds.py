"""Configs for each kind of run, with the values that people choose."""

from __future__ import annotations

from typing import Any

from .config import Config
from .errors import ConfigError
from .keys import SECTIONS
from .phrases import phrase

BASE: dict[str, Any] = {
    "compute_environment": "LOCAL_MACHINE",
    "debug": False,
    "distributed_type": "NO",
    "downcast_bf16": "no",
    "machine_rank": 0,
    "main_training_function": "main",
    "mixed_precision": "no",
    "num_machines": 1,
    "num_processes": 1,
    "rdzv_backend": "static",
    "same_network": True,
    "tpu_env": [],
    "tpu_use_cluster": False,
    "tpu_use_sudo": False,
    "use_cpu": False,
}
FSDP1: dict[str, Any] = {
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_backward_prefetch_policy": "BACKWARD_PRE",
    "fsdp_forward_prefetch": False,
    "fsdp_cpu_ram_efficient_loading": True,
    "fsdp_offload_params": False,
    "fsdp_sharding_strategy": "FULL_SHARD",
    "fsdp_state_dict_type": "FULL_STATE_DICT",
    "fsdp_sync_module_states": True,
    "fsdp_transformer_layer_cls_to_wrap": "BertLayer",
    "fsdp_use_orig_params": True,
}
FSDP2: dict[str, Any] = {
    "fsdp_version": 2,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_cpu_ram_efficient_loading": True,
    "fsdp_offload_params": False,
    "fsdp_reshard_after_forward": True,
    "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    "fsdp_transformer_layer_cls_to_wrap": "BertLayer",
}
PLUGIN: dict[str, Any] = {
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 0.7,
    "offload_optimizer_device": "cpu",
    "offload_param_device": "cpu",
    "zero3_init_flag": True,
    "zero_stage": 2,
}
KINDS = ("ddp", "fsdp", "fsdp2", "deepspeed", "deepspeed-plugin", "cpu")


def new(kind: str, /, **changes: Any) -> Config:
    """A config of a kind; without changes, the one that the guide shows for it.

    Args:
        kind: ddp, fsdp, fsdp2, deepspeed (with a JSON file of its own), deepspeed-plugin, or cpu.
        **changes: Keys and their values; those of a section go into it by their own name. None is left out.

    Raises:
        ConfigError: the kind is unknown, or a key that its configs do not have.
    """
    if kind not in KINDS:
        raise ConfigError("kind", kind, phrase("give one of {known}", known=", ".join(KINDS)))
    values = {**BASE, **_of_kind(kind)}
    section = next((name for name in ("fsdp_config", "deepspeed_config") if name in values), None)
    for name, value in changes.items():
        if value is None:
            continue
        if section is not None and name in SECTIONS[section]:
            values[section] = {**values[section], name: value}
        elif name in values or name in ("gpu_ids", "main_process_ip", "main_process_port"):
            values[name] = value
        else:
            raise ConfigError(name, value, phrase("a {kind} config has no such key", kind=kind))
    return Config(values)


def _of_kind(kind: str) -> dict[str, Any]:
    if kind == "ddp":
        return {
            "distributed_type": "MULTI_GPU", "gpu_ids": "all", "main_process_ip": "192.168.20.1",
            "main_process_port": 9898, "mixed_precision": "fp16", "num_machines": 2, "num_processes": 8,
        }  # fmt: skip
    if kind == "cpu":
        return {"distributed_type": "MULTI_GPU", "num_processes": 2, "use_cpu": True, "main_process_port": 29500}
    if kind in ("fsdp", "fsdp2"):
        section = dict(FSDP1 if kind == "fsdp" else FSDP2)
        return {"distributed_type": "FSDP", "fsdp_config": section, "mixed_precision": "bf16", "num_processes": 2}
    if kind == "deepspeed":
        section = {"deepspeed_config_file": "ds_config.json", "zero3_init_flag": True}
        return {"distributed_type": "DEEPSPEED", "deepspeed_config": section, "num_processes": 4}
    section = dict(PLUGIN)
    return {"distributed_type": "DEEPSPEED", "deepspeed_config": section, "mixed_precision": "bf16", "num_processes": 2}
