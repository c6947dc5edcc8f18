"""Unknown and misspelt keys; values that are none of the known ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import keys
from ..config import Config
from .base import nearest, rule

Findings = Iterator[dict[str, Any]]


@rule("K001")
def unknown_key(config: Config) -> Findings:
    """A key that accelerate does not know stops the launch."""
    for key in config.values:
        if key not in keys.COMMON:
            near = nearest(key, keys.COMMON)
            yield {
                "key": key,
                "message": f"unknown key {key!r}" + (f", did you mean {near!r}?" if near else ""),
                "consequence": "accelerate launch refuses the whole file, without naming the right key.",
                "fix": f"rename it to {near}" if near else "remove it",
                "rename": near,
            }


@rule("K002")
def unknown_nested_key(config: Config) -> Findings:
    """A misspelt key in a section is accepted silently, and what it was to set keeps its default."""
    for section, known in keys.SECTIONS.items():
        for key in config.section(section):
            if key not in known:
                near = nearest(key, known)
                yield {
                    "key": f"{section}.{key}",
                    "message": f"unknown key {key!r} in {section}" + (f", did you mean {near!r}?" if near else ""),
                    "consequence": "it is ignored without a word; the setting keeps its default.",
                    "fix": f"rename it to {near}" if near else "remove it",
                    "rename": near,
                }


@rule("K003")
def missing_type(config: Config) -> Findings:
    """Without distributed_type the file is not taken."""
    if config.get("distributed_type") is None:
        yield {
            "key": "distributed_type",
            "message": "distributed_type is missing",
            "consequence": "accelerate launch stops: a distributed_type must be specified.",
            "fix": f"give one of {', '.join(keys.TYPES)}",
        }


@rule("K004")
def unknown_type(config: Config) -> Findings:
    """distributed_type is case-sensitive and one of a list."""
    value = config.get("distributed_type")
    if value is not None and value not in keys.TYPES:
        aliases = {"ddp": "MULTI_GPU", "fsdp": "FSDP", "fsdp2": "FSDP", "gpu": "MULTI_GPU", "none": "NO", "false": "NO"}
        near = aliases.get(str(value).lower()) or nearest(str(value).upper(), keys.TYPES)
        yield {
            "key": "distributed_type",
            "message": f"{value!r} is no distributed_type" + (f", did you mean {near}?" if near else ""),
            "consequence": "accelerate launch stops with a traceback that lists no choices.",
            "fix": f"give {near}" if near else f"give one of {', '.join(keys.TYPES)}",
            "value": near if near else ...,
        }


@rule("K005")
def section_is_a_mapping(config: Config) -> Findings:
    """A section that is a list or a text is accepted and fails later."""
    for section in ("fsdp_config", "deepspeed_config", "dynamo_config", "fp8_config", "parallelism_config"):
        value = config.get(section)
        if value is not None and not isinstance(value, dict):
            yield {
                "key": section,
                "message": f"{section} is {type(value).__name__}, not a mapping",
                "consequence": "it is accepted, and the run fails in each process after its imports.",
                "fix": "write its keys indented below it",
            }


@rule("K006")
def section_of_another_kind(config: Config) -> Findings:
    """A section of one kind under the type of another does nothing."""
    for section, kind in (("fsdp_config", "FSDP"), ("deepspeed_config", "DEEPSPEED")):
        if config.section(section) and config.kind != kind:
            yield {
                "key": section,
                "message": f"{section} is given, but distributed_type is {config.kind}",
                "consequence": "the section is ignored without a word.",
                "fix": f"set distributed_type to {kind}, or remove the section",
            }


@rule("K007")
def compute_environment(config: Config) -> Findings:
    """Anything but LOCAL_MACHINE is read as another kind of config."""
    value = config.get("compute_environment", "LOCAL_MACHINE")
    if value not in ("LOCAL_MACHINE", "AMAZON_SAGEMAKER"):
        yield {
            "key": "compute_environment",
            "message": f"{value!r} is no compute_environment",
            "consequence": "the file is read as a SageMaker config, and its keys are called unknown.",
            "fix": "give LOCAL_MACHINE",
            "value": "LOCAL_MACHINE",
        }


@rule("K008")
def rendezvous_backend(config: Config) -> Findings:
    """An unknown rdzv_backend is accepted and fails when processes meet."""
    value = config.get("rdzv_backend", "static")
    if value not in keys.BACKENDS:
        near = nearest(value, keys.BACKENDS)
        yield {
            "key": "rdzv_backend",
            "message": f"{value!r} is no rendezvous backend",
            "consequence": "the launch fails when the processes are to meet.",
            "fix": f"give {near or 'static'}",
            "value": near or "static",
        }


@rule("K009")
def old_fp16(config: Config) -> Findings:
    """`fp16: true` is an old spelling."""
    if "fp16" in config.values:
        yield {
            "key": "fp16",
            "message": "fp16 is an old key",
            "consequence": "it is turned into mixed_precision: fp16, whatever mixed_precision says.",
            "fix": "remove it and set mixed_precision",
        }


@rule("K010")
def dynamo_backend(config: Config) -> Findings:
    """An unknown compiler backend is accepted and stops the launch."""
    for key in ("dynamo_backend", "dynamo_config.dynamo_backend"):
        value = config.get(key)
        if value is not None and str(value).upper() not in keys.DYNAMO:
            near = nearest(str(value).upper(), keys.DYNAMO)
            yield {
                "key": key,
                "message": f"{value!r} is no dynamo backend" + (f", did you mean {near}?" if near else ""),
                "consequence": "the launch stops with a traceback.",
                "fix": f"give one of {', '.join(keys.DYNAMO)}",
                "value": near if near else ...,
            }
