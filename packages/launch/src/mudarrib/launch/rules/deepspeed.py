"""DeepSpeed: the file, the plugin's keys, and what does not go together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import keys
from ..config import Config
from ..phrases import phrase
from .base import nearest, rule

Findings = Iterator[dict[str, Any]]


def section(config: Config) -> dict[str, Any]:
    return config.section("deepspeed_config") if config.kind == "DEEPSPEED" else {}


@rule("D001")
def zero_stage(config: Config) -> Findings:
    """ZeRO has stages 0 to 3."""
    value = section(config).get("zero_stage")
    if value is not None and value not in (0, 1, 2, 3):
        yield {
            "key": "deepspeed_config.zero_stage",
            "message": phrase("there is no ZeRO stage {value!r}", value=value),
            "consequence": phrase("it is accepted, and each process fails after its imports."),
            "fix": phrase("give 0, 1, 2 or 3"),
        }


@rule("D002")
def offload_device(config: Config) -> Findings:
    """Offload goes to none, cpu or nvme."""
    for key in ("offload_optimizer_device", "offload_param_device"):
        value = section(config).get(key)
        if value is not None and not isinstance(value, bool) and str(value) not in keys.DEVICES:
            near = nearest(value, keys.DEVICES)
            yield {
                "key": f"deepspeed_config.{key}",
                "message": phrase("{value!r} is no device to offload to", value=value),
                "consequence": phrase("each process fails after its imports."),
                "fix": phrase("give one of {known}", known=", ".join(keys.DEVICES)),
                "value": near if near else ...,
            }


@rule("D003")
def offload_path(config: Config) -> Findings:
    """Offload to NVMe needs its path."""
    for kind in ("optimizer", "param"):
        found = section(config)
        if found.get(f"offload_{kind}_device") == "nvme" and not found.get(f"offload_{kind}_nvme_path"):
            yield {
                "key": f"deepspeed_config.offload_{kind}_device",
                "message": phrase("nvme without offload_{kind}_nvme_path", kind=kind),
                "consequence": phrase("each process fails when DeepSpeed starts."),
                "fix": phrase("give offload_{kind}_nvme_path", kind=kind),
            }


@rule("D004")
def file_and_plugin(config: Config) -> Findings:
    """With a file of its own, the plugin's keys stop the launch."""
    found = section(config)
    if "deepspeed_config_file" not in found:
        return
    for key in [key for key in found if key in keys.DEEPSPEED and key not in keys.WITH_FILE]:
        yield {
            "key": f"deepspeed_config.{key}",
            "message": phrase("{key} beside deepspeed_config_file", key=key),
            "consequence": phrase("accelerate says that it will be ignored, and stops."),
            "fix": phrase("set it in the JSON file, and remove it here"),
        }


@rule("D005")
def precision_and_file(config: Config) -> Findings:
    """With a file of its own, mixed_precision belongs into it."""
    value = config.get("mixed_precision", "no")
    if "deepspeed_config_file" in section(config) and value not in ("no", False, None):
        yield {
            "key": "mixed_precision",
            "message": phrase("mixed_precision beside deepspeed_config_file"),
            "consequence": phrase("accelerate says that it will be ignored, and stops."),
            "fix": phrase('set "bf16": {"enabled": true} in the JSON file, and mixed_precision: \'no\' here'),
            "value": "no",
        }


def json_file(config: Config) -> tuple[Any, Path | None]:
    given = section(config).get("deepspeed_config_file")
    if given is None:
        return None, None
    path = Path(str(given)).expanduser()
    if not path.is_absolute() and not path.exists() and config.path is not None:
        path = config.path.parent / path
    return given, path


@rule("D006")
def file_exists(config: Config) -> Findings:
    """The JSON file is there."""
    given, path = json_file(config)
    if path is not None and config.path is not None and not path.is_file():
        yield {
            "key": "deepspeed_config.deepspeed_config_file",
            "message": phrase("there is no file {given!r}", given=given),
            "consequence": phrase("each process fails after its imports, with two chained tracebacks."),
            "fix": phrase("give the path of the JSON file, from where you launch"),
        }


@rule("D007")
def file_is_json(config: Config) -> Findings:
    """The JSON file is a JSON object."""
    given, path = json_file(config)
    if path is None or not path.is_file():
        return
    try:
        ok = isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
        where = phrase("it is no JSON object")
    except ValueError as error:
        ok, where = False, str(error)
    if not ok:
        yield {
            "key": "deepspeed_config.deepspeed_config_file",
            "message": phrase("{given!r} cannot be read: {where}", given=given, where=where),
            "consequence": phrase("each process fails after its imports."),
            "fix": phrase("mend the JSON file"),
        }


@rule("D008")
def parameters_need_stage_3(config: Config) -> Findings:
    """Parameters can be offloaded at stage 3 only."""
    found = section(config)
    if found.get("zero_stage") in (0, 1) and found.get("offload_param_device") in ("cpu", "nvme"):
        yield {
            "key": "deepspeed_config.offload_param_device",
            "message": phrase(
                "parameters are offloaded at ZeRO stage {zero_stage}", zero_stage=found.get("zero_stage")
            ),
            "consequence": phrase("it has no effect: parameters are whole on each device."),
            "fix": phrase("set zero_stage: 3, or offload_param_device: none"),
            "value": "none",
        }


@rule("D009")
def missing_section(config: Config) -> Findings:
    """DeepSpeed without a section runs with defaults."""
    if config.kind == "DEEPSPEED" and not config.section("deepspeed_config"):
        yield {
            "key": "distributed_type",
            "message": phrase("DEEPSPEED without a deepspeed_config"),
            "consequence": phrase("DeepSpeed runs with its defaults, ZeRO stage 2."),
            "fix": phrase("give a deepspeed_config, with deepspeed_config_file or zero_stage"),
        }


@rule("D010")
def numbers(config: Config) -> Findings:
    """Accumulation is a whole number of at least 1, clipping a number of at least 0; both may be auto."""
    found = section(config)
    for key, least in (("gradient_accumulation_steps", 1), ("gradient_clipping", 0)):
        value = found.get(key)
        if value in (None, "auto"):
            continue
        try:
            ok = not isinstance(value, bool) and float(value) >= least
            ok = ok and (least == 0 or float(value) == int(float(value)))
        except (TypeError, ValueError):
            ok = False
        if not ok:
            yield {
                "key": f"deepspeed_config.{key}",
                "message": phrase("{key} is {value!r}", key=key, value=value),
                "consequence": phrase("each process fails when DeepSpeed starts."),
                "fix": phrase(
                    "give {what} of at least {least}",
                    what=phrase("a whole number") if least else phrase("a number"),
                    least=least,
                ),
            }
