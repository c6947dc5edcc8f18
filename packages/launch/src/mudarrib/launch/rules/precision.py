"""Precision against the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import keys
from ..config import Config
from ..phrases import phrase
from .base import nearest, rule

Findings = Iterator[dict[str, Any]]


def _words(config: Config) -> Iterator[str]:
    """The keys whose values are words; other rules look at the rest, and downcast_bf16 is never read from a file."""
    other = {*keys.SWITCHES, *keys.NUMBERS, *keys.LISTS, *keys.SECTIONS, "distributed_type", "downcast_bf16"}
    yield from (key for key in keys.COMMON if key not in other)
    yield "fsdp_config.fsdp_sharding_strategy"
    for section, names in keys.SECTIONS.items():
        yield from (f"{section}.{name}" for name in names if name not in other)


@rule("P001")
def unquoted_no(config: Config) -> Findings:
    """YAML reads an unquoted `no` as false, where a word is meant."""
    for key in _words(config):
        value = config.get(key)
        if not isinstance(value, bool):
            continue
        span = config.spans.get(key, ((0, 0), None))[1]
        word = config.text[slice(*span)] if span else "no" if value is False else None
        yield {
            "key": key,
            "message": phrase(
                "{key} is {config}: YAML reads an unquoted no or yes as a boolean",
                key=key.rpartition(".")[2],
                config=str(value).lower(),
            ),
            "consequence": phrase("it is not the text that was meant."),
            "fix": phrase("put it in quotes: {word}", word=f"'{word or 'no'}'"),
            "value": ... if word is None or word.lower() in ("true", "false") else word,
        }


@rule("P002")
def unknown_precision(config: Config) -> Findings:
    """An unknown precision is accepted by the loader and stops the launch."""
    value = config.get("mixed_precision", "no")
    if not isinstance(value, bool) and str(value).lower() not in keys.PRECISIONS:
        near = nearest(value, keys.PRECISIONS)
        yield {
            "key": "mixed_precision",
            "message": phrase("{value!r} is no precision", value=value)
            + (phrase(", did you mean {near}?", near=near) if near else ""),
            "consequence": phrase("the launch stops with a traceback."),
            "fix": phrase("give one of {known}", known=", ".join(keys.PRECISIONS)),
            "value": near if near else ...,
        }


@rule("P003")
def half_precision_on_cpu(config: Config) -> Findings:
    """float16 on the CPU runs in float32 without a word."""
    if config.get("use_cpu") is True and config.get("mixed_precision") in ("fp16", "fp8"):
        yield {
            "key": "mixed_precision",
            "message": phrase(
                "mixed_precision {mixed_precision} with use_cpu", mixed_precision=config.get("mixed_precision")
            ),
            "consequence": phrase("everything runs in float32, and nothing says so."),
            "fix": phrase("give bf16 or 'no'"),
            "value": "bf16",
        }


@rule("P004")
def booleans(config: Config) -> Findings:
    """A quoted true or false is a text, which counts as true."""
    for key in ("use_cpu", "same_network", "debug", "tpu_use_cluster", "tpu_use_sudo", "enable_cpu_affinity"):
        value = config.get(key)
        if value is not None and not isinstance(value, bool):
            lowered = str(value).lower()
            yield {
                "key": key,
                "message": phrase("{key} is {value!r}, not true or false", key=key, value=value),
                "consequence": phrase("any text counts as true."),
                "fix": phrase(
                    "write {key}: {what} without quotes",
                    key=key,
                    what="false" if lowered in ("false", "no", "0") else "true",
                ),
                "value": lowered not in ("false", "no", "0"),
            }
