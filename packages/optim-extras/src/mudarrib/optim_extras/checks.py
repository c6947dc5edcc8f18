"""What every optimizer here asks of its groups, gradients and loaded states before it uses them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch

from .errors import OptionError

Shapes = dict[str, tuple[int, ...]]


def is_number(value: Any) -> bool:
    """Whether it is a finite number, or a tensor of one."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and math.isfinite(float(value))
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_not_negative(value: Any) -> bool:
    return is_number(value) and value >= 0


def are_all(values: Any, right: Callable[[Any], bool]) -> bool:
    return isinstance(values, (tuple, list)) and len(values) == 2 and all(map(right, values))


RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "lr": (is_not_negative, "give a number of 0 or more, such as 1e-3"),
    "betas": (
        lambda value: are_all(value, lambda beta: is_not_negative(beta) and beta < 1),
        "give two numbers from 0 to below 1, such as (0.9, 0.999)",
    ),
    "eps": (
        lambda value: is_not_negative(value) or are_all(value, is_not_negative),
        "give what the optimizer's signature shows: one number of 0 or more, or two",
    ),
    "weight_decay": (is_not_negative, "give a number of 0 or more, such as 0.01"),
    "decay_rate": (lambda value: is_number(value) and value < 0, "give a number below 0, such as -0.8"),
    "clip_threshold": (lambda value: is_number(value) and value > 0, "give a number above 0, such as 1.0"),
    "clip_grad_value": (
        lambda value: value is None or (is_number(value) and value > 0),
        "give a number above 0, or none",
    ),
    "rank": (
        lambda value: value is None or (type(value) is int and value >= 0),
        "give a whole number, such as 128; 0 for the plain rule",
    ),
    "update_proj_gap": (lambda value: type(value) is int and value >= 1, "give a whole number of at least 1"),
    "scale": (is_not_negative, "give a number of 0 or more, such as 0.25"),
    "proj_type": (
        lambda value: value in ("std", "reverse_std", "right", "left", "full"),
        "give one of std, reverse_std, right, left, full",
    ),
    "svd": (lambda value: value in ("warm", "full"), "give one of warm, full"),
    "scale_type": (lambda value: value in ("channel", "tensor"), "give one of channel, tensor"),
}


def check_group(group: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse settings that cannot work, names that are nearly a setting's, and parameters that cannot be trained.

    Args:
        group: With its defaults.
        known: Names of the optimizer's settings.

    Raises:
        OptionError: names the setting, its value, and what to give.
    """
    for name, value in group.items():
        right, fix = RULES.get(name, (None, ""))
        if name == "lr" and value is None and group.get("relative_step"):
            continue
        if right is not None and not right(value):
            raise OptionError(name, value, fix)
        near = [] if name in (*known, *RULES, "params") else difflib.get_close_matches(name, list(known), 1, 0.8)
        if near:
            raise OptionError(name, value, f"a group has no such setting; did you mean {near[0]!r}?")
    for parameter in group["params"]:
        shape = tuple(parameter.shape)
        if parameter.is_meta:
            raise OptionError(
                "params", f"shape {shape} on the meta device", "give the weights memory and values, then build this"
            )
        if group.get("rank") and len(shape) != 2:
            raise OptionError(
                "rank", group["rank"], f"a parameter of shape {shape} is no matrix; put it in a group without rank"
            )


def check_dense(gradient: torch.Tensor) -> None:
    """Refuse a sparse gradient.

    Raises:
        OptionError: says where such gradients come from.
    """
    if gradient.layout is not torch.strided:
        raise OptionError(
            "gradient", f"sparse, of shape {tuple(gradient.shape)}", "build the embedding with sparse=False"
        )


def check_loaded_group(saved: Mapping[str, Any], known: Iterable[str], optimizer: str) -> None:
    """Refuse a group of another kind of optimizer.

    Raises:
        OptionError: the saved group lacks settings.
    """
    missing = [name for name in known if name not in saved]
    if missing:
        raise OptionError(
            "state_dict", f"a group without {', '.join(missing)}", f"load one that {optimizer} has saved, or start anew"
        )


def check_loaded_state(saved: Mapping[str, Any], shapes: Shapes, optimizer: str) -> None:
    """Refuse tensors that are not this optimizer's or not this parameter's.

    Args:
        saved: The state of one parameter.
        shapes: What tensors it may have.
        optimizer: Named in errors.

    Raises:
        OptionError: names the tensor and both shapes.
    """
    for name, value in saved.items():
        if not isinstance(value, torch.Tensor) or (value.dim() == 0 and name not in shapes):
            continue
        shape = tuple(value.shape)
        if name not in shapes:
            raise OptionError("state_dict", f"{name} of shape {shape}", f"{optimizer} has no such state; load its own")
        if shape != shapes[name]:
            raise OptionError(
                "state_dict", f"{name} of shape {shape}", f"this parameter needs {shapes[name]}: load it for that model"
            )
