"""Adapters from peft around a model; peft itself is an extra."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from torch import nn

from mudarrib.core_loop import ArgumentError

if TYPE_CHECKING:
    from peft import PeftConfig


def is_adapted(model: nn.Module) -> bool:
    """Whether a model is already wrapped by peft."""
    return hasattr(model, "peft_config") and hasattr(model, "get_base_model")


def is_quantized(model: Any) -> bool:
    """Whether a model's weights are quantized, by whatever library."""
    base = model.get_base_model() if is_adapted(model) else model
    return bool(getattr(base, "is_quantized", False)) or getattr(base, "quantization_method", None) is not None


def with_adapters(model: Any, peft_config: PeftConfig | None, checkpointing: bool) -> Any:
    """The model with adapters; itself if none are asked for.

    Args:
        model: A model of transformers, perhaps quantized.
        peft_config: Of the adapters; None for none.
        checkpointing: Whether activations are recomputed, which needs inputs that require gradients.

    Raises:
        ArgumentError: peft is missing, the config isn't one, the model has adapters already, or a quantized model
            would be trained without any.
    """
    if peft_config is None:
        if is_quantized(model) and not is_adapted(model):
            raise ArgumentError(
                "peft_config", None, "quantized weights can't be trained; train adapters on top of them"
            )
        return model
    peft = import_peft()
    if not isinstance(peft_config, peft.PeftConfig):
        raise ArgumentError("peft_config", type(peft_config).__name__, "give a config of peft, such as peft.LoraConfig")
    if is_adapted(model):
        raise ArgumentError(
            "peft_config",
            type(peft_config).__name__,
            "the model has adapters; leave peft_config out, or merge them first",
        )
    if is_quantized(model):
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=checkpointing)
    elif checkpointing and hasattr(model, "enable_input_require_grads"):
        model.enable_input_require_grads()
    try:
        return peft.get_peft_model(model, peft_config)
    except ValueError as error:
        raise ArgumentError("peft_config", type(peft_config).__name__, f"it doesn't suit the model: {error}") from error


def merged(model: Any) -> nn.Module:
    """A copy of a model with its adapters merged into the weights; the model itself stays as it is.

    Raises:
        ArgumentError: it has no adapters.
    """
    if not is_adapted(model):
        raise ArgumentError("model", type(model).__name__, "it has no adapters to merge")
    whole: nn.Module = copy.deepcopy(model).merge_and_unload()
    return whole


def import_peft() -> Any:
    """The peft module.

    Raises:
        ArgumentError: it isn't installed.
    """
    try:
        import peft
    except ImportError as error:
        raise ArgumentError("peft_config", "peft is not installed", "pip install 'mudarrib-sft[lora]'") from error
    return peft
