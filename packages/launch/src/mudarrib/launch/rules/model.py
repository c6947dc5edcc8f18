"""The config against the model that is to be trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..config import Config
from ..phrases import phrase
from .base import nearest, rule

Findings = Iterator[dict[str, Any]]


@rule("L001")
def layer_class_is_in_the_model(config: Config) -> Findings:
    """The class of the layers to wrap is one that the model has."""
    model, key = config.context.model, "fsdp_transformer_layer_cls_to_wrap"
    value = config.section("fsdp_config").get(key)
    if model is None or not model.classes or config.kind != "FSDP" or not value:
        return
    given = [name.strip() for name in str(value).split(",")]
    wrong = [name for name in given if name and name not in model.classes]
    if not wrong:
        return
    near = nearest(wrong[0], [*model.layers, *model.classes])
    right = ",".join(nearest(name, model.classes) or "" if name in wrong else name for name in given)
    yield {
        "key": f"fsdp_config.{key}",
        "message": phrase("a {kind} model has no layer class {wrong!r}", kind=model.kind, wrong=wrong[0])
        + (phrase(", did you mean {near}?", near=near) if near else ""),
        "consequence": phrase("each process fails after it has built the model."),
        "fix": phrase("give {known}", known=", ".join(model.layers or model.classes[:5])),
        "value": right if near and all(right.split(",")) else ...,
    }


@rule("L002")
def layer_class_is_a_layer(config: Config) -> Findings:
    """Wrapping the model's layers, not something inside or around them."""
    model, key = config.context.model, "fsdp_transformer_layer_cls_to_wrap"
    value = config.section("fsdp_config").get(key)
    if model is None or not model.layers or config.kind != "FSDP" or not value:
        return
    given = [name.strip() for name in str(value).split(",")]
    if all(name in model.classes for name in given) and not set(given) & set(model.layers):
        yield {
            "key": f"fsdp_config.{key}",
            "message": phrase("{value} is no whole layer of a {kind} model", value=value, kind=model.kind),
            "consequence": phrase("it runs, with units that are too small or too large to save much."),
            "fix": phrase("give {known}", known=", ".join(model.layers)),
            "stops": False,
        }


@rule("L003")
def moe_layers_are_in_the_model(config: Config) -> Findings:
    """DeepSpeed's leaf modules are classes that the model has."""
    model, key = config.context.model, "deepspeed_moe_layer_cls_names"
    value = config.section("deepspeed_config").get(key)
    if model is None or not model.classes or not value:
        return
    for name in (part.strip() for part in str(value).split(",")):
        if name not in model.classes:
            near = nearest(name, model.classes)
            yield {
                "key": f"deepspeed_config.{key}",
                "message": phrase("a {kind} model has no layer class {wrong!r}", kind=model.kind, wrong=name)
                + (phrase(", did you mean {near}?", near=near) if near else ""),
                "consequence": phrase("each process fails after it has built the model."),
                "fix": phrase("give a class of the model, or remove the key"),
            }
