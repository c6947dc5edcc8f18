"""A config in plain words."""

from __future__ import annotations

from .config import Config


def explain(config: Config) -> str:
    """What a config starts, and how."""
    processes, machines = config.number("num_processes") or 1, config.number("num_machines") or 1
    device = "the CPU" if config.get("use_cpu") is True else "an accelerator each"
    what = {
        "NO": "One plain process",
        "FSDP": f"{processes} processes that share one model (FSDP {config.get('fsdp_config.fsdp_version', 1)})",
        "DEEPSPEED": f"{processes} processes under DeepSpeed",
    }.get(config.kind, f"{processes} processes, each with the whole model (DDP)")
    lines = [f"{what}, on {device}, {machines} machine{'s' if machines > 1 else ''}."]
    if machines > 1:
        address = f"{config.get('main_process_ip')}:{config.get('main_process_port')}"
        lines.append(f"This is machine {config.get('machine_rank', 0)}; all meet at {address}.")
    precision = str(config.get("mixed_precision", "no"))
    lines.append(
        "Everything in float32." if precision in ("no", "False") else f"Computed in {precision} where it is safe."
    )
    lines += _fsdp(config) if config.kind == "FSDP" else _deepspeed(config) if config.kind == "DEEPSPEED" else []
    return "\n".join(lines)


def _fsdp(config: Config) -> list[str]:
    section = config.section("fsdp_config")
    layer = section.get("fsdp_transformer_layer_cls_to_wrap")
    lines = [f"Parameters, gradients and optimizer states are split, layer by layer ({layer or 'by the model'})."]
    if section.get("fsdp_offload_params") is True:
        lines.append("What is not in use waits in the CPU's memory.")
    kind = str(section.get("fsdp_state_dict_type", "FULL_STATE_DICT"))
    lines.append("Checkpoints are one file." if kind == "FULL_STATE_DICT" else "Each process saves its own part.")
    return lines


def _deepspeed(config: Config) -> list[str]:
    section = config.section("deepspeed_config")
    if "deepspeed_config_file" in section:
        return [f"Everything else stands in {section['deepspeed_config_file']}."]
    parts = {0: "nothing", 1: "optimizer states", 2: "optimizer states and gradients", 3: "all, parameters too"}
    lines = [f"ZeRO stage {section.get('zero_stage', 2)} splits {parts.get(section.get('zero_stage', 2), '?')}."]
    for kind, name in (("optimizer", "Optimizer states"), ("param", "Parameters")):
        device = section.get(f"offload_{kind}_device")
        if device not in (None, "none"):
            lines.append(f"{name} wait on {device}.")
    return lines
