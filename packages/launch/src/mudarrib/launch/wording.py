"""A config in plain words."""

from __future__ import annotations

from .config import Config
from .phrases import phrase


def explain(config: Config) -> str:
    """What a config starts, and how."""
    processes, machines = config.number("num_processes") or 1, config.number("num_machines") or 1
    device = phrase("the CPU") if config.get("use_cpu") is True else phrase("an accelerator each")
    what = {
        "NO": phrase("One plain process"),
        "FSDP": phrase(
            "{processes} processes that share one model (FSDP {fsdp_version})",
            processes=processes,
            fsdp_version=config.get("fsdp_config.fsdp_version", 1),
        ),
        "DEEPSPEED": phrase("{processes} processes under DeepSpeed", processes=processes),
    }.get(config.kind, phrase("{processes} processes, each with the whole model (DDP)", processes=processes))
    lines = [
        phrase("{what}, on {device}, 1 machine.", what=what, device=device)
        if machines == 1
        else phrase("{what}, on {device}, {machines} machines.", what=what, device=device, machines=machines)
    ]
    if machines > 1:
        address = f"{config.get('main_process_ip')}:{config.get('main_process_port')}"
        lines.append(
            phrase(
                "This is machine {machine_rank}; all meet at {address}.",
                machine_rank=config.get("machine_rank", 0),
                address=address,
            )
        )
    precision = str(config.get("mixed_precision", "no"))
    lines.append(
        phrase("Everything in float32.")
        if precision in ("no", "False")
        else phrase("Computed in {precision} where it is safe.", precision=precision)
    )
    lines += _fsdp(config) if config.kind == "FSDP" else _deepspeed(config) if config.kind == "DEEPSPEED" else []
    return "\n".join(lines)


def _fsdp(config: Config) -> list[str]:
    section = config.section("fsdp_config")
    layer = section.get("fsdp_transformer_layer_cls_to_wrap")
    lines = [
        phrase(
            "Parameters, gradients and optimizer states are split, layer by layer ({layer}).",
            layer=layer or phrase("by the model"),
        )
    ]
    if section.get("fsdp_offload_params") is True:
        lines.append(phrase("What is not in use waits in the CPU's memory."))
    kind = str(section.get("fsdp_state_dict_type", "FULL_STATE_DICT"))
    lines.append(
        phrase("Checkpoints are one file.") if kind == "FULL_STATE_DICT" else phrase("Each process saves its own part.")
    )
    return lines


def _deepspeed(config: Config) -> list[str]:
    section = config.section("deepspeed_config")
    if "deepspeed_config_file" in section:
        return [
            phrase(
                "Everything else stands in {deepspeed_config_file}.",
                deepspeed_config_file=section["deepspeed_config_file"],
            )
        ]
    parts = {
        0: phrase("nothing"),
        1: phrase("optimizer states"),
        2: phrase("optimizer states and gradients"),
        3: phrase("all, parameters too"),
    }
    lines = [
        phrase(
            "ZeRO stage {zero_stage} splits {parts}.",
            zero_stage=section.get("zero_stage", 2),
            parts=parts.get(section.get("zero_stage", 2), "?"),
        )
    ]
    for kind, name in (("optimizer", phrase("Optimizer states")), ("param", phrase("Parameters"))):
        device = section.get(f"offload_{kind}_device")
        if device not in (None, "none"):
            lines.append(phrase("{name} wait on {device}.", name=name, device=device))
    return lines
