"""Optimizers by name: torch's own, those that other packages register, and the peers' for further libraries."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, Protocol

import torch

from .errors import ArgumentError

GROUP = "mudarrib.optimizers"
FROM_OPTIM_EXTRAS = ("galore_", "apollo_", "lomo", "adalomo", "muon")
NO_DECAY = re.compile(r"bias|layernorm|rmsnorm|(?:^|\.)norm(?:$|\.)|_norm(?:$|\.)")
TRUE = ("true", "1", "yes")


class OptimizerBuilder(Protocol):
    """What an entry point of the group `mudarrib.optimizers` names."""

    def __call__(
        self,
        model: torch.nn.Module,
        param_groups: list[dict[str, Any]],
        *,
        lr: float,
        target_modules: str | list[str] | None,
        options: Mapping[str, str],
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> torch.optim.Optimizer: ...


def decay_parameter_names(model: torch.nn.Module) -> list[str]:
    """Names of the parameters that weight decay applies to: not biases, not those of normalisation layers."""
    names = []
    for module_name, module in model.named_modules():
        if isinstance(module, torch.nn.LayerNorm):
            continue
        for name in module._parameters:
            full = f"{module_name}.{name}" if module_name else name
            if not NO_DECAY.search(full.lower()):
                names.append(full)
    return names


def decay_groups(model: torch.nn.Module, decaying: list[str], weight_decay: float) -> list[dict[str, Any]]:
    """Two parameter groups of what is trained: with weight decay, and without."""
    chosen = set(decaying)
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for name, parameter in named if name in chosen], "weight_decay": weight_decay},
        {"params": [parameter for name, parameter in named if name not in chosen], "weight_decay": 0.0},
    ]


def parse_options(text: str | Mapping[str, Any] | None) -> dict[str, str]:
    """`"rank=64, scale=0.1"` as a mapping of texts.

    Raises:
        ArgumentError: a part is not of the form name=value.
    """
    if not text:
        return {}
    if isinstance(text, Mapping):
        return {str(name): str(value) for name, value in text.items()}
    options = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise ArgumentError("optim_args", text, 'write it as "name=value, name=value"')
        options[name.strip()] = value.strip()
    return options


def _typed(options: dict[str, str], kinds: Mapping[str, type], optim: str) -> dict[str, Any]:
    unknown = sorted(set(options) - set(kinds))
    if unknown:
        raise ArgumentError("optim_args", unknown, f"the options of optim={optim!r} are {sorted(kinds)}")
    try:
        return {
            name: text.lower() in TRUE if kinds[name] is bool else kinds[name](text) for name, text in options.items()
        }
    except ValueError as error:
        raise ArgumentError("optim_args", options, f"options of optim={optim!r} are numbers: {error}") from error


def _adamw(args: Any, groups: list[dict[str, Any]], options: dict[str, str]) -> torch.optim.Optimizer:
    _typed(options, {}, args.optim)
    settings = {
        "lr": args.learning_rate,
        "betas": (args.adam_beta1, args.adam_beta2),
        "eps": args.adam_epsilon,
        "weight_decay": args.weight_decay,
    }
    if args.optim == "adamw_torch_fused" and _fused_kernel_serves(groups):
        from .adamw import FusedAdamW

        return FusedAdamW(groups, **settings)
    return torch.optim.AdamW(groups, **settings, fused=args.optim == "adamw_torch_fused" or None)


def _fused_kernel_serves(groups: list[dict[str, Any]]) -> bool:
    parameters = [parameter for group in groups for parameter in group["params"]]
    return all(type(p) is torch.nn.Parameter and p.is_floating_point() for p in parameters)


def _adafactor(args: Any, groups: list[dict[str, Any]], options: dict[str, str]) -> torch.optim.Optimizer:
    from transformers.optimization import Adafactor

    _typed(options, {}, args.optim)
    optimizer: torch.optim.Optimizer = Adafactor(
        groups, lr=args.learning_rate, scale_parameter=False, relative_step=False
    )
    return optimizer


def _from_torch(cls: str, kinds: Mapping[str, type]) -> Callable[..., torch.optim.Optimizer]:
    def build(args: Any, groups: list[dict[str, Any]], options: dict[str, str]) -> torch.optim.Optimizer:
        settings = _typed(options, kinds, args.optim)
        optimizer: torch.optim.Optimizer = getattr(torch.optim, cls)(groups, lr=args.learning_rate, **settings)
        return optimizer

    return build


OWN: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw_torch": _adamw,
    "adamw_torch_fused": _adamw,
    "adafactor": _adafactor,
    "sgd": _from_torch("SGD", {"momentum": float, "dampening": float, "weight_decay": float, "nesterov": bool}),
    "adagrad": _from_torch("Adagrad", {"lr_decay": float, "weight_decay": float, "eps": float}),
    "rmsprop": _from_torch(
        "RMSprop", {"momentum": float, "alpha": float, "eps": float, "weight_decay": float, "centered": bool}
    ),
}


def peer_names() -> list[str]:
    """Names that transformers knows; what they need must be installed."""
    from transformers.training_args import OptimizerNames

    return [name.value for name in OptimizerNames]


def check_name(name: str) -> None:
    """Refuse an unknown `optim` before anything is built.

    Raises:
        ArgumentError: names the nearest known one, or the package that brings it.
    """
    if name in OWN:
        return
    registered = {entry.name for entry in entry_points(group=GROUP)}
    if name in registered:
        return
    if name.startswith(FROM_OPTIM_EXTRAS):
        raise ArgumentError("optim", name, 'it comes with: pip install "mudarrib-core-loop[optim]"')
    known = sorted({*OWN, *registered, *peer_names()})
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ArgumentError("optim", name, f"{hint}the known names are {', '.join(known)}")


def build(args: Any, model: torch.nn.Module, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """The optimizer that `args.optim` names, over these parameter groups.

    Raises:
        ArgumentError: the name or an option is unknown, or a package is missing.
    """
    name, options = str(args.optim), parse_options(args.optim_args)
    check_name(name)
    if name in OWN:
        return OWN[name](args, groups, options)
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            builder: OptimizerBuilder = entry.load()
            return builder(
                model,
                groups,
                lr=args.learning_rate,
                target_modules=args.optim_target_modules,
                options=options,
                betas=(args.adam_beta1, args.adam_beta2),
                eps=args.adam_epsilon,
                weight_decay=args.weight_decay,
            )
    return _of_the_peers(args, model, groups)


def _of_the_peers(args: Any, model: torch.nn.Module, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    from transformers import Trainer

    try:
        cls, settings = Trainer.get_optimizer_cls_and_kwargs(args, model)
    except (ImportError, ValueError) as error:
        raise ArgumentError("optim", str(args.optim), str(error)) from error
    if not (isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer)):
        return cls()(model, **settings)  # type: ignore[no-any-return]  # a factory of the peers, untyped
    chosen = next((settings.pop(name) for name in ("params", "model", "optimizer_dict") if name in settings), groups)
    return cls(chosen, **settings)
