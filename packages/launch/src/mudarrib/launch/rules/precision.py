"""Precision against the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import keys
from ..config import Config
from .base import nearest, rule

Findings = Iterator[dict[str, Any]]


@rule("P001")
def unquoted_no(config: Config) -> Findings:
    """YAML reads an unquoted `no` as false."""
    for key in ("mixed_precision", "downcast_bf16"):
        if config.get(key) is False or config.get(key) is True:
            yield {
                "key": key,
                "message": f"{key} is {str(config.get(key)).lower()}: YAML reads an unquoted no or yes as a boolean",
                "consequence": "it is not the text that was meant.",
                "fix": "put it in quotes: 'no'",
                "value": "no" if config.get(key) is False else ...,
            }


@rule("P002")
def unknown_precision(config: Config) -> Findings:
    """An unknown precision is accepted by the loader and stops the launch."""
    value = config.get("mixed_precision", "no")
    if not isinstance(value, bool) and str(value).lower() not in keys.PRECISIONS:
        near = nearest(value, keys.PRECISIONS)
        yield {
            "key": "mixed_precision",
            "message": f"{value!r} is no precision" + (f", did you mean {near}?" if near else ""),
            "consequence": "the launch stops with a traceback.",
            "fix": f"give one of {', '.join(keys.PRECISIONS)}",
            "value": near if near else ...,
        }


@rule("P003")
def half_precision_on_cpu(config: Config) -> Findings:
    """float16 on the CPU runs in float32 without a word."""
    if config.get("use_cpu") is True and config.get("mixed_precision") in ("fp16", "fp8"):
        yield {
            "key": "mixed_precision",
            "message": f"mixed_precision {config.get('mixed_precision')} with use_cpu",
            "consequence": "everything runs in float32, and nothing says so.",
            "fix": "give bf16 or 'no'",
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
                "message": f"{key} is {value!r}, not true or false",
                "consequence": "any text counts as true.",
                "fix": f"write {key}: {'false' if lowered in ('false', 'no', '0') else 'true'} without quotes",
                "value": lowered not in ("false", "no", "0"),
            }
