"""FSDP: names, versions, and what does not go together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import keys
from ..config import Config
from ..phrases import phrase
from .base import nearest, rule

Findings = Iterator[dict[str, Any]]


def is_fsdp(config: Config) -> bool:
    return config.kind == "FSDP"


def version(config: Config) -> Any:
    return config.get("fsdp_config.fsdp_version", 1)


def _choice(config: Config, key: str, known: tuple[str, ...], consequence: str, numbers: int = 0) -> Findings:
    """A finding where a value is no known word, and no number up to one that torch takes for it."""
    value = config.get(f"fsdp_config.{key}")
    if str(value) in map(str, range(1, numbers + 1)):
        return
    if is_fsdp(config) and value is not None and not isinstance(value, bool) and str(value).upper() not in known:
        near = nearest(str(value).upper(), known)
        yield {
            "key": f"fsdp_config.{key}",
            "message": phrase("{value!r} is no {key}", value=value, key=key)
            + (phrase(", did you mean {near}?", near=near) if near else ""),
            "consequence": consequence,
            "fix": phrase("give one of {known}", known=", ".join(known)),
            "value": near if near else ...,
        }


@rule("F001")
def sharding_strategy(config: Config) -> Findings:
    """The sharding strategy is a name, or a number from 1 to 5."""
    late = phrase("it is accepted, and each process fails after its imports.")
    yield from _choice(config, "fsdp_sharding_strategy", keys.SHARDING, late, 5)


@rule("F002")
def wrap_policy(config: Config) -> Findings:
    """The wrap policy is one of three."""
    yield from _choice(config, "fsdp_auto_wrap_policy", keys.WRAPPING, phrase("each process fails after its imports."))


@rule("F003")
def state_dict_type(config: Config) -> Findings:
    """The state-dict type is one of three."""
    late = phrase("each process fails with a bare KeyError.")
    yield from _choice(config, "fsdp_state_dict_type", keys.STATE_DICTS, late, 3)


@rule("F004")
def backward_prefetch(config: Config) -> Findings:
    """The backward prefetch is one of three."""
    for key in ("fsdp_backward_prefetch", "fsdp_backward_prefetch_policy"):
        yield from _choice(config, key, keys.PREFETCH, phrase("each process fails after its imports."), 2)


@rule("F005")
def fsdp_version(config: Config) -> Findings:
    """There are versions 1 and 2."""
    if is_fsdp(config) and version(config) not in (1, 2):
        yield {
            "key": "fsdp_config.fsdp_version",
            "message": phrase("there is no FSDP version {version!r}", version=version(config)),
            "consequence": phrase("each process fails after its imports."),
            "fix": phrase("give 1 or 2"),
            "value": 2,
        }


RESHARDS = {"FULL_SHARD": True, "1": True, "SHARD_GRAD_OP": False, "2": False}


@rule("F006")
def old_keys_in_version_2(config: Config) -> Findings:
    """Keys of version 1 mean nothing in version 2."""
    section = config.section("fsdp_config")
    if not is_fsdp(config) or version(config) != 2:
        return
    for key in keys.FSDP1_ONLY:
        if key not in section:
            continue
        found = {
            "key": f"fsdp_config.{key}",
            "message": phrase("{key} is a key of FSDP version 1", key=key),
            "consequence": phrase("it is ignored."),
            "fix": phrase("remove it; fsdp_reshard_after_forward takes the place of fsdp_sharding_strategy"),
        }
        reshards = RESHARDS.get(str(section[key]).upper()) if key == "fsdp_sharding_strategy" else None
        if reshards is not None and "fsdp_reshard_after_forward" not in section:
            yield {**found, "rename": "fsdp_reshard_after_forward", "value": reshards}
        else:
            yield {**found, "remove": True}


@rule("F014")
def version_1_is_old(config: Config) -> Findings:
    """FSDP version 1 is the old one."""
    section = config.section("fsdp_config")
    if not is_fsdp(config) or version(config) != 1 or not section:
        return
    strategy = str(section.get("fsdp_sharding_strategy", "FULL_SHARD")).upper()
    moves = strategy in RESHARDS and section.get("fsdp_state_dict_type") != "LOCAL_STATE_DICT"
    there = "fsdp_version" in section
    yield {
        "key": "fsdp_config.fsdp_version" if there else "fsdp_config",
        "message": phrase("FSDP version 1 is deprecated"),
        "consequence": phrase("it runs; torch and the libraries on it develop version 2."),
        "fix": phrase("set fsdp_version: 2; --fix moves the other keys, too")
        if moves
        else phrase("set fsdp_version: 2; {strategy} has no successor that --fix could write", strategy=strategy),
        "value": 2 if moves and there else ...,
        "add": {"fsdp_config.fsdp_version": 2} if moves and not there else {},
        "stops": False,
    }


@rule("F007")
def new_keys_in_version_1(config: Config) -> Findings:
    """A boolean fsdp_reshard_after_forward is a key of version 2."""
    value = config.get("fsdp_config.fsdp_reshard_after_forward")
    if is_fsdp(config) and version(config) == 1 and isinstance(value, bool):
        yield {
            "key": "fsdp_config.fsdp_reshard_after_forward",
            "message": phrase("fsdp_reshard_after_forward: true or false is of FSDP version 2"),
            "consequence": phrase("version 1 takes it for a sharding strategy and fails."),
            "fix": phrase("set fsdp_version: 2, or fsdp_sharding_strategy"),
            "add": {"fsdp_config.fsdp_version": 2} if "fsdp_version" not in config.section("fsdp_config") else {},
        }


@rule("F008")
def wrap_class_is_named(config: Config) -> Findings:
    """Wrapping by layer needs the layer's class, unless the model names it."""
    section = config.section("fsdp_config")
    by_layer = str(section.get("fsdp_auto_wrap_policy", "")).upper() == "TRANSFORMER_BASED_WRAP"
    value = section.get("fsdp_transformer_layer_cls_to_wrap")
    if is_fsdp(config) and by_layer and value is not None and not str(value).strip():
        yield {
            "key": "fsdp_config.fsdp_transformer_layer_cls_to_wrap",
            "message": phrase("the layer class is empty"),
            "consequence": phrase("each process fails after it has built the model."),
            "fix": phrase("give the class of a layer, such as BertLayer, or remove the key to take the model's own"),
        }


@rule("F009")
def least_parameters(config: Config) -> Findings:
    """Wrapping by size needs the size."""
    section = config.section("fsdp_config")
    by_size = str(section.get("fsdp_auto_wrap_policy", "")).upper() == "SIZE_BASED_WRAP"
    if is_fsdp(config) and by_size and not section.get("fsdp_min_num_params"):
        yield {
            "key": "fsdp_config.fsdp_auto_wrap_policy",
            "message": phrase("SIZE_BASED_WRAP without fsdp_min_num_params"),
            "consequence": phrase("the whole model is one unit: nothing is saved."),
            "fix": phrase("give fsdp_min_num_params, such as 100000000"),
        }


@rule("F010")
def on_cpu(config: Config) -> Findings:
    """FSDP on the CPU quietly becomes DDP."""
    if is_fsdp(config) and config.get("use_cpu") is True:
        yield {
            "key": "use_cpu",
            "message": phrase("FSDP with use_cpu"),
            "consequence": phrase(
                "accelerate by itself runs DDP instead, every process with all parameters, without a word."
            ),
            "fix": phrase("train with mudarrib-core-loop, which shards on the CPU too, or set use_cpu: false"),
            "stops": False,
        }


@rule("F011")
def efficient_loading_needs_sync(config: Config) -> Findings:
    """Loading on one process, which is usual, needs its states sent to the others."""
    section = config.section("fsdp_config")
    if (
        is_fsdp(config)
        and version(config) == 1
        and section.get("fsdp_cpu_ram_efficient_loading", True) is not False
        and section.get("fsdp_sync_module_states") is False
    ):
        yield {
            "key": "fsdp_config.fsdp_sync_module_states",
            "message": phrase("fsdp_cpu_ram_efficient_loading without fsdp_sync_module_states"),
            "consequence": phrase("all processes but the first would train on empty weights; accelerate stops."),
            "fix": phrase("set fsdp_sync_module_states: true"),
            "value": True,
        }


@rule("F015")
def syncing_on_cpu(config: Config) -> Findings:
    """Sending the first process's states needs an accelerator."""
    syncs = config.get("fsdp_config.fsdp_sync_module_states") is True
    if is_fsdp(config) and version(config) == 1 and config.get("use_cpu") is True and syncs:
        yield {
            "key": "fsdp_config.fsdp_sync_module_states",
            "message": phrase("fsdp_sync_module_states with use_cpu"),
            "consequence": phrase("accelerate by itself stops in each process: there is no available device."),
            "fix": phrase("train with mudarrib-core-loop, or set it and fsdp_cpu_ram_efficient_loading to false"),
            "stops": False,
        }


@rule("F012")
def missing_section(config: Config) -> Findings:
    """FSDP without a section runs with one unit."""
    if is_fsdp(config) and not config.section("fsdp_config"):
        yield {
            "key": "distributed_type",
            "message": phrase("FSDP without an fsdp_config"),
            "consequence": phrase("the whole model is one unit: no layer is freed while another computes."),
            "fix": phrase("give an fsdp_config with fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"),
            "stops": False,
        }


@rule("F013")
def nested_booleans(config: Config) -> Findings:
    """Switches of the section are true or false."""
    switches = [key for key in keys.FSDP if key.endswith(("prefetch", "params", "loading", "states", "checkpointing"))]
    for key in switches:
        value = config.get(f"fsdp_config.{key}")
        if key not in ("fsdp_backward_prefetch", "fsdp_min_num_params") and isinstance(value, str):
            yield {
                "key": f"fsdp_config.{key}",
                "message": phrase("{key} is the text {value!r}", key=key, value=value),
                "consequence": phrase("it may count as true whatever it says."),
                "fix": phrase("write true or false without quotes"),
                "value": value.lower() not in ("false", "no", "0"),
            }
