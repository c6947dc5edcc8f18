"""A config in plain words."""

from __future__ import annotations

from .config import Config
from .phrases import phrase
from .rules.base import with_prefixes

NOT_OFFLOADED = (None, "none")
DEVICES = {"MULTI_NPU": "NPU", "MULTI_MLU": "MLU", "MULTI_XPU": "XPU", "MULTI_HPU": "HPU", "MULTI_MUSA": "MUSA",
           "MULTI_SDAA": "SDAA", "MULTI_NEURON": "Neuron", "XLA": "TPU"}  # fmt: skip
FP8 = {"TE": "Transformer Engine", "MSAMP": "MS-AMP", "AO": "torchao"}


def explain(config: Config) -> str:
    """What a config starts, and how."""
    if config.get("compute_environment") == "AMAZON_SAGEMAKER":
        return phrase("A job that accelerate hands to SageMaker.")
    config = with_prefixes(config)
    lines = [*_start(config), *_precision(config)]
    if config.kind == "FSDP":
        lines += _fsdp(config)
    if config.kind == "DEEPSPEED":
        lines += _deepspeed(config)
    return "\n".join([*lines, *_parallel(config), *_compiled(config)])


def _start(config: Config) -> list[str]:
    machines = config.number("num_machines") or 1
    what, device = _what(config), _device(config)
    lines = [
        phrase("{what}, on {device}, 1 machine.", what=what, device=device)
        if machines == 1
        else phrase("{what}, on {device}, {machines} machines.", what=what, device=device, machines=machines)
    ]
    if machines > 1:
        address = f"{config.get('main_process_ip')}:{config.get('main_process_port')}"
        rank = config.get("machine_rank", 0)
        lines.append(
            phrase("This is machine {machine_rank}; all meet at {address}.", machine_rank=rank, address=address)
        )
    if config.get("gpu_ids") not in (None, "all"):
        lines.append(phrase("They use the devices {ids} of this machine.", ids=config.get("gpu_ids")))
    hosts = config.get("mpirun_config.mpirun_hostfile") or config.get("mpirun_hostfile")
    if hosts:
        lines.append(phrase("mpirun starts them on the machines that {hosts} names.", hosts=hosts))
    if config.get("tpu_use_cluster") is True:
        name, zone = config.get("tpu_name"), config.get("tpu_zone")
        lines.append(phrase("The machines are those of the TPU pod {name} in {zone}.", name=name, zone=zone))
    return lines


def _what(config: Config) -> str:
    number = config.number("num_processes")
    if config.kind in ("NO", "False"):
        return phrase("One plain process")
    processes = (
        phrase("as many processes as there are devices")
        if number is None
        else phrase("1 process")
        if number == 1
        else phrase("{number} processes", number=number)
    )
    if config.kind == "FSDP":
        version = config.get("fsdp_config.fsdp_version", 1)
        return phrase("{processes} sharing one model (FSDP {fsdp_version})", processes=processes, fsdp_version=version)
    if config.kind == "DEEPSPEED":
        return phrase("{processes} under DeepSpeed", processes=processes)
    if config.kind == "MEGATRON_LM":
        return phrase("{processes} under Megatron-LM", processes=processes)
    return phrase("{processes}, each with the whole model (DDP)", processes=processes)


def _device(config: Config) -> str:
    if config.get("use_cpu") is True or config.kind == "MULTI_CPU":
        return phrase("the CPU")
    if config.kind in DEVICES:
        return phrase("one {device} each", device=DEVICES[config.kind])
    return (
        phrase("an accelerator, if there is one") if config.kind in ("NO", "False") else phrase("an accelerator each")
    )


def _precision(config: Config) -> list[str]:
    precision = str(config.get("mixed_precision") or "no").lower()
    if config.get("deepspeed_config.deepspeed_config_file") and config.kind == "DEEPSPEED":
        return []
    if precision in ("no", "false"):
        return [phrase("Everything in float32.")]
    if precision != "fp8":
        return [phrase("Computed in {precision} where it is safe.", precision=precision)]
    backend = str(config.get("fp8_config.backend") or config.get("fp8_config.fp8_backend") or "").upper()
    if not backend:
        return [phrase("Matrices are multiplied in 8 bits, by what is installed for it.")]
    return [phrase("Matrices are multiplied in 8 bits, by {library}.", library=FP8.get(backend, backend))]


def _fsdp(config: Config) -> list[str]:
    section = config.section("fsdp_config")
    second = config.number("fsdp_config.fsdp_version") == 2
    layer = section.get("fsdp_transformer_layer_cls_to_wrap") or phrase("by the model")
    if str(section.get("fsdp_auto_wrap_policy")).upper() == "SIZE_BASED_WRAP":
        layer = phrase("from {number} parameters on", number=section.get("fsdp_min_num_params"))
    strategy = str(section.get("fsdp_sharding_strategy", "FULL_SHARD")).upper()
    kept = section.get("fsdp_reshard_after_forward") is False if second else strategy in ("2", "SHARD_GRAD_OP")
    if not second and strategy in ("3", "NO_SHARD"):
        lines = [phrase("Nothing is split.")]
    elif kept:
        lines = [phrase("Gradients and optimizer states are split; parameters are whole until backward is done.")]
    else:
        lines = [phrase("Parameters, gradients and optimizer states are split, layer by layer ({layer}).", layer=layer)]
    if not second and strategy in ("4", "5", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"):
        lines.append(phrase("They are split inside each machine; every machine has all of them."))
    if section.get("fsdp_offload_params") is True:
        lines.append(phrase("What is not in use waits in the CPU's memory."))
    if section.get("fsdp_activation_checkpointing") is True:
        lines.append(phrase("Activations are computed anew in backward."))
    kind = str(section.get("fsdp_state_dict_type", "SHARDED_STATE_DICT" if second else "FULL_STATE_DICT"))
    whole = phrase("Checkpoints are one file.")
    return [*lines, whole if kind.upper() in ("1", "FULL_STATE_DICT") else phrase("Each process saves its own part.")]


def _deepspeed(config: Config) -> list[str]:
    section = config.section("deepspeed_config")
    if "deepspeed_config_file" in section:
        file = section["deepspeed_config_file"]
        return [phrase("Everything else stands in {deepspeed_config_file}.", deepspeed_config_file=file)]
    parts = {
        0: phrase("nothing"),
        1: phrase("optimizer states"),
        2: phrase("optimizer states and gradients"),
        3: phrase("all, parameters too"),
    }
    stage = config.number("deepspeed_config.zero_stage") if "zero_stage" in section else 2
    lines = [phrase("ZeRO stage {zero_stage} splits {parts}.", zero_stage=stage, parts=parts.get(stage or 0, "?"))]
    if section.get("offload_optimizer_device") not in NOT_OFFLOADED:
        lines.append(phrase("Optimizer states wait on {device}.", device=section["offload_optimizer_device"]))
    if section.get("offload_param_device") not in NOT_OFFLOADED:
        device = section["offload_param_device"]
        lines.append(
            phrase("Parameters wait on {device}.", device=device)
            if stage == 3
            else phrase("Parameters do not wait on {device}: that is of stage 3.", device=device)
        )
    return lines


def _parallel(config: Config) -> list[str]:
    said = {
        "parallelism_config_dp_replicate_size": phrase(
            "There are {number} copies of what is split, each with other rows."
        ),
        "parallelism_config_dp_shard_size": phrase(
            "Parameters are split over {number} processes with other rows each."
        ),
        "parallelism_config_tp_size": phrase(
            "Each layer's matrices are split over {number} processes (tensor parallel)."
        ),
        "parallelism_config_cp_size": phrase("Each row's tokens are split over {number} processes (context parallel)."),
        "parallelism_config_sp_size": phrase(
            "Each row's tokens are split over {number} processes (sequence parallel)."
        ),
        "megatron_lm_tp_degree": phrase("Each layer's matrices are split over {number} processes (tensor parallel)."),
        "megatron_lm_pp_degree": phrase("The layers follow each other over {number} processes (pipeline)."),
    }
    found = {**config.section("parallelism_config")}
    if config.kind == "MEGATRON_LM":
        found |= config.section("megatron_lm_config")
    return [
        sentence.format(number=found[key])
        for key, sentence in said.items()
        if isinstance(found.get(key), int) and found[key] > 1
    ]


def _compiled(config: Config) -> list[str]:
    section = config.section("dynamo_config")
    backend = section.get("dynamo_backend", config.get("dynamo_backend"))
    if backend in (None, False) or str(backend).upper() == "NO":
        return []
    how = (
        [phrase("in mode {mode}", mode=section["dynamo_mode"])]
        if section.get("dynamo_mode", "default") != "default"
        else []
    )
    how += [phrase("for sizes that change")] if section.get("dynamo_use_dynamic") is True else []
    how += [phrase("as one graph")] if section.get("dynamo_use_fullgraph") is True else []
    how += [phrase("one layer for all alike")] if section.get("dynamo_use_regional_compilation") is True else []
    between = phrase(", ")
    more = f" ({between.join(how)})" if how else ""
    return [phrase("The model is compiled with {backend}{more}.", backend=backend, more=more)]
