"""Unknown and misspelt keys; values that are none of the known ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import keys
from ..config import Config
from ..phrases import phrase
from .base import nearest, rule, without_prefix

Findings = Iterator[dict[str, Any]]


@rule("K001")
def unknown_key(config: Config) -> Findings:
    """A key that accelerate does not know stops the launch."""
    for key in config.values:
        if key not in keys.COMMON:
            near = nearest(key, keys.COMMON)
            yield {
                "key": key,
                "message": phrase("unknown key {key!r}", key=key)
                + (phrase(", did you mean {near!r}?", near=near) if near else ""),
                "consequence": phrase("accelerate launch refuses the whole file, without naming the right key."),
                "fix": phrase("rename it to {near}", near=near) if near else phrase("remove it"),
                "rename": near,
            }


@rule("K002")
def unknown_nested_key(config: Config) -> Findings:
    """A misspelt key in a section is accepted silently, and what it was to set keeps its default."""
    for section, known in keys.SECTIONS.items():
        for key in config.section(section):
            if key not in known and without_prefix(section, key) is None:
                near = nearest(key, known)
                yield {
                    "key": f"{section}.{key}",
                    "message": phrase("unknown key {key!r} in {section}", key=key, section=section)
                    + (phrase(", did you mean {near!r}?", near=near) if near else ""),
                    "consequence": phrase("it is ignored without a word; the setting keeps its default."),
                    "fix": phrase("rename it to {near}", near=near) if near else phrase("remove it"),
                    "rename": near,
                }


@rule("K012")
def key_without_its_prefix(config: Config) -> Findings:
    """A key without its section's prefix is read as if it had it."""
    for section in keys.SECTIONS:
        for key in config.section(section):
            near = without_prefix(section, key)
            if near is not None:
                yield {
                    "key": f"{section}.{key}",
                    "message": phrase("{key} without the prefix of its section", key=key),
                    "consequence": phrase(
                        "accelerate launch reads it as {near}; whoever looks for that name does not find it.", near=near
                    ),
                    "fix": phrase("rename it to {near}", near=near),
                    "rename": near if near not in config.section(section) else None,
                    "stops": False,
                }


@rule("K013")
def key_given_twice(config: Config) -> Findings:
    """Of a key that is given twice, the last counts."""
    for key, (line, _) in config.repeated.items():
        yield {
            "key": key,
            "message": phrase("{key} is given twice, first on line {line}", key=key, line=line),
            "consequence": phrase("the last one counts, without a word."),
            "fix": phrase("remove one of them"),
        }


@rule("K003")
def missing_type(config: Config) -> Findings:
    """Without distributed_type the file is not taken."""
    if config.get("distributed_type") is None:
        yield {
            "key": "distributed_type",
            "message": phrase("distributed_type is missing"),
            "consequence": phrase("accelerate launch stops: a distributed_type must be specified."),
            "fix": phrase("give one of {known}", known=", ".join(keys.TYPES)),
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
            "message": phrase("{value!r} is no distributed_type", value=value)
            + (phrase(", did you mean {near}?", near=near) if near else ""),
            "consequence": phrase("accelerate launch stops with a traceback that lists no choices."),
            "fix": phrase("give {near}", near=near)
            if near
            else phrase("give one of {known}", known=", ".join(keys.TYPES)),
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
                "message": phrase("{section} is {type}, not a mapping", section=section, type=type(value).__name__),
                "consequence": phrase("it is accepted, and the run fails in each process after its imports."),
                "fix": phrase("write its keys indented below it"),
            }


@rule("K006")
def section_of_another_kind(config: Config) -> Findings:
    """A section of one kind under the type of another does nothing."""
    for section, kind in (("fsdp_config", "FSDP"), ("deepspeed_config", "DEEPSPEED")):
        if config.section(section) and config.kind != kind:
            yield {
                "key": section,
                "message": phrase(
                    "{section} is given, but distributed_type is {kind}", section=section, kind=config.kind
                ),
                "consequence": phrase("the section is ignored without a word."),
                "fix": phrase("set distributed_type to {kind}, or remove the section", kind=kind),
                "stops": config.kind != "NO",
            }


@rule("K007")
def compute_environment(config: Config) -> Findings:
    """Anything but LOCAL_MACHINE is read as another kind of config."""
    value = config.get("compute_environment", "LOCAL_MACHINE")
    if value not in ("LOCAL_MACHINE", "AMAZON_SAGEMAKER"):
        yield {
            "key": "compute_environment",
            "message": phrase("{value!r} is no compute_environment", value=value),
            "consequence": phrase("the file is read as a SageMaker config, and its keys are called unknown."),
            "fix": phrase("give LOCAL_MACHINE"),
            "value": "LOCAL_MACHINE",
        }


@rule("K011")
def another_environment(config: Config) -> Findings:
    """Configs for SageMaker are not looked at."""
    if config.get("compute_environment") == "AMAZON_SAGEMAKER":
        yield {
            "key": "compute_environment",
            "message": phrase("a config for SageMaker"),
            "consequence": phrase("accelerate hands it to SageMaker; nothing of it was checked."),
            "fix": phrase("give LOCAL_MACHINE for a run on machines of your own"),
            "stops": False,
        }


@rule("K008")
def rendezvous_backend(config: Config) -> Findings:
    """An unknown rdzv_backend is accepted and fails when processes meet."""
    value = config.get("rdzv_backend", "static")
    if value not in keys.BACKENDS:
        near = nearest(value, keys.BACKENDS)
        yield {
            "key": "rdzv_backend",
            "message": phrase("{value!r} is no rendezvous backend", value=value),
            "consequence": phrase("the launch fails when the processes are to meet."),
            "fix": phrase("give {near}", near=near or "static"),
            "value": near or "static",
        }


@rule("K009")
def old_fp16(config: Config) -> Findings:
    """`fp16: true` is an old spelling."""
    if "fp16" in config.values:
        yield {
            "key": "fp16",
            "message": phrase("fp16 is an old key"),
            "consequence": phrase("it is turned into mixed_precision: fp16, whatever mixed_precision says."),
            "fix": phrase("remove it and set mixed_precision"),
            "remove": True,
            "add": {"mixed_precision": "fp16"} if config.get("fp16") is True else {},
        }


@rule("K010")
def dynamo_backend(config: Config) -> Findings:
    """An unknown compiler backend is accepted and stops the launch."""
    for key in ("dynamo_backend", "dynamo_config.dynamo_backend"):
        value = config.get(key)
        if value is not None and not isinstance(value, bool) and str(value).upper() not in keys.DYNAMO:
            near = nearest(str(value).upper(), keys.DYNAMO)
            yield {
                "key": key,
                "message": phrase("{value!r} is no dynamo backend", value=value)
                + (phrase(", did you mean {near}?", near=near) if near else ""),
                "consequence": phrase("the launch stops with a traceback."),
                "fix": phrase("give one of {known}", known=", ".join(keys.DYNAMO)),
                "value": near if near else ...,
            }
