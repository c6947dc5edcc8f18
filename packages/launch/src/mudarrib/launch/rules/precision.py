"""Precision against the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import keys
from ..config import Config
from ..phrases import phrase
from .base import nearest, rule

Findings = Iterator[dict[str, Any]]


@rule("P001")
def unquoted_no(config: Config) -> Findings:
    """YAML reads an unquoted `no` as false."""
    for key in ("mixed_precision", "downcast_bf16"):
        if config.get(key) is False or config.get(key) is True:
            yield {
                "key": key,
                "message": phrase(
                    "{key} is {config}: YAML reads an unquoted no or yes as a boolean",
                    key=key,
                    config=str(config.get(key)).lower(),
                ),
                "consequence": phrase("it is not the text that was meant."),
                "fix": phrase("put it in quotes: 'no'"),
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
