"""Tensor, context and sequence parallelism; fp8."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from .. import keys
from ..config import Config
from ..phrases import phrase
from .base import nearest, rule

Findings = Iterator[dict[str, Any]]


def sizes(config: Config) -> dict[str, Any]:
    section = config.section("parallelism_config")
    return {key: section[key] for key in keys.PARALLEL_SIZES if key in section}


@rule("R001")
def sizes_are_counts(config: Config) -> Findings:
    """Each size is a whole number of at least 1."""
    for key, value in sizes(config).items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            yield {
                "key": f"parallelism_config.{key}",
                "message": phrase("{key} is {value!r}, not a whole number of at least 1", key=key, value=value),
                "consequence": phrase("each process fails after its imports."),
                "fix": phrase("give a number such as 2"),
            }


@rule("R002")
def sizes_make_the_processes(config: Config) -> Findings:
    """The sizes multiplied are num_processes."""
    found, processes = sizes(config), config.number("num_processes")
    if not found or not processes or not all(type(value) is int and value > 0 for value in found.values()):
        return
    product = math.prod(found.values())
    if product != processes:
        yield {
            "key": "parallelism_config",
            "message": phrase(
                "the sizes make {product}, num_processes is {processes}", product=product, processes=processes
            ),
            "consequence": phrase("each process fails after its imports."),
            "fix": phrase("set parallelism_config_dp_shard_size so that the product is num_processes"),
        }


@rule("R003")
def needs_fsdp_2(config: Config) -> Findings:
    """Parallelism stands on FSDP version 2, sequence parallelism on DeepSpeed."""
    section = config.section("parallelism_config")
    deepspeed = config.kind == "DEEPSPEED" and section.get("parallelism_config_sp_backend", "deepspeed") == "deepspeed"
    if section and not deepspeed and (config.kind != "FSDP" or config.get("fsdp_config.fsdp_version", 1) != 2):
        there = "fsdp_version" in config.section("fsdp_config")
        yield {
            "key": "fsdp_config.fsdp_version" if there else "parallelism_config",
            "message": phrase("parallelism_config without FSDP version 2"),
            "consequence": phrase("accelerate launch refuses it."),
            "fix": phrase("set distributed_type: FSDP and fsdp_version: 2"),
            "value": 2 if there and config.kind == "FSDP" else ...,
        }


@rule("R004")
def fp8_backend(config: Config) -> Findings:
    """fp8 has three backends."""
    for key in ("backend", "fp8_backend"):
        value = config.get(f"fp8_config.{key}")
        if value is not None and not isinstance(value, bool) and str(value).upper() not in keys.FP8_BACKENDS:
            near = nearest(str(value).upper(), keys.FP8_BACKENDS)
            yield {
                "key": f"fp8_config.{key}",
                "message": phrase("{value!r} is no fp8 backend", value=value),
                "consequence": phrase("the launch stops with a traceback."),
                "fix": phrase("give one of {known}", known=", ".join(keys.FP8_BACKENDS)),
                "value": near or ...,
            }


@rule("R005")
def fp8_section_without_fp8(config: Config) -> Findings:
    """A section for fp8 under another precision does nothing."""
    if config.section("fp8_config") and config.get("mixed_precision") != "fp8":
        yield {
            "key": "fp8_config",
            "message": phrase(
                "fp8_config is given, but mixed_precision is {value!r}", value=config.get("mixed_precision")
            ),
            "consequence": phrase("the section is ignored without a word."),
            "fix": phrase("set mixed_precision: fp8, or remove the section"),
        }
