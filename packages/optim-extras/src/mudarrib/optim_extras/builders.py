"""Optimizers by name for any trainer: what the entry points `mudarrib.optimizers` name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import torch

from . import galore
from .adalomo import AdaLomo, FusedAdaLomo
from .apollo import ApolloAdamW, ApolloAdamWLayerwise
from .errors import OptionError
from .exact_state import PerParameter
from .lomo import FusedLomo, Lomo
from .muon import MUON, MuonWithAdamW
from .options import at_least, one_of, parse
from .targets import hidden_matrices, match_modules

logger: logging.Logger = logging.getLogger(__name__)
Groups = list[dict[str, Any]]

LOW_RANK: dict[str, tuple[type[PerParameter], type[PerParameter]]] = {
    "galore_adamw": (galore.GaLoreAdamW, galore.GaLoreAdamWLayerwise),
    "galore_adafactor": (galore.GaLoreAdafactor, galore.GaLoreAdafactorLayerwise),
    "galore_adamw_8bit": (galore.GaLoreAdamW8bit, galore.GaLoreAdamW8bitLayerwise),
    "apollo_adamw": (ApolloAdamW, ApolloAdamWLayerwise),
    "apollo_mini": (ApolloAdamW, ApolloAdamWLayerwise),
}
GALORE_OPTIONS: dict[str, object] = {
    "rank": 128,
    "update_proj_gap": 200,
    "scale": 0.25,
    "proj_type": "std",
    "svd": "warm",
}
APOLLO_OPTIONS: dict[str, object] = {
    "rank": 128,
    "update_proj_gap": 200,
    "scale": 1.0,
    "proj_type": "std",
    "scale_type": "channel",
}
MINI_OPTIONS: dict[str, object] = {**APOLLO_OPTIONS, "rank": 1, "scale": 128.0, "scale_type": "tensor"}
OPTIONS: dict[str, dict[str, object]] = {"apollo_adamw": APOLLO_OPTIONS, "apollo_mini": MINI_OPTIONS}
CLIP = {"clip": "none"}


class Builder(Protocol):
    """Makes an optimizer over a model's parameter groups."""

    def __call__(
        self,
        model: torch.nn.Module,
        param_groups: Groups,
        *,
        lr: float,
        target_modules: str | Sequence[str] | None = None,
        options: Mapping[str, str] | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> torch.optim.Optimizer: ...


def build_low_rank(
    model: torch.nn.Module,
    param_groups: Groups,
    *,
    lr: float,
    target_modules: str | Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    name: str = "galore_adamw",
    layerwise: bool = False,
) -> torch.optim.Optimizer:
    """A GaLore or APOLLO optimizer: the matched linear layers in low rank, the rest as usual.

    Args:
        model: The model, whose modules `target_modules` names.
        param_groups: Parameters, with a weight decay each.
        lr: Learning rate.
        target_modules: See `match_modules`.
        options: `rank`, `update_proj_gap`, `scale`, `proj_type`; GaLore's `svd` ("warm" or "full"), APOLLO's
            `scale_type` ("channel" or "tensor"); layerwise also `clip`.
        betas: Decay of the moments (AdamW).
        eps: See the optimizer (AdamW).
        weight_decay: Of groups that have none of their own.
        name: galore_adamw, galore_adafactor, galore_adamw_8bit, apollo_adamw or apollo_mini.
        layerwise: Update inside the backward pass.

    Raises:
        OptionError: an option or the targets cannot work.
    """
    full_name = f"{name}_layerwise" if layerwise else name
    param_groups = as_groups(param_groups)
    known = OPTIONS.get(name, GALORE_OPTIONS)
    chosen = parse_with_clip(options, known, full_name, layerwise)
    check_low_rank(chosen)
    matches = match_modules(model, target_modules)
    logger.info("%s: %s", full_name, matches.summary)
    low_rank = {key: chosen[key] for key in known}
    groups = split_groups(param_groups, matches.parameters, low_rank)
    check_targets(groups, "rank", model, matches.names)
    settings: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay}
    if name == "galore_adafactor":
        settings |= {"scale_parameter": False, "relative_step": False}
    else:
        settings |= {"betas": betas, "eps": eps}
    plain, fused = LOW_RANK[name]
    return in_backward_or_not(plain, fused if layerwise else None, chosen["clip"], full_name)(groups, **settings)


def build_lomo(
    model: torch.nn.Module,
    param_groups: Groups,
    *,
    lr: float,
    target_modules: str | Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    name: str = "lomo",
) -> torch.optim.Optimizer:
    """LOMO or AdaLomo over all parameters, inside the backward pass.

    Args:
        model: Not used; all of `param_groups` is trained.
        param_groups: Parameters, with a weight decay each.
        lr: Learning rate.
        target_modules: Not used: the methods have no low-rank part.
        options: `clip`, `clip_grad_value`; for adalomo also `decay_rate` and `clip_threshold`.
        betas: Not used: the methods have no such moments.
        eps: Not used, likewise.
        weight_decay: Of groups that have none of their own.
        name: lomo or adalomo.

    Raises:
        OptionError: an option cannot work.
    """
    known: dict[str, Any] = {"clip_grad_value": None}
    if name == "adalomo":
        known |= {"decay_rate": -0.8, "clip_threshold": 1.0}
    chosen = parse_with_clip(options, known, name, in_backward=True)
    settings = {key: chosen[key] for key in known}
    plain, fused = (AdaLomo, FusedAdaLomo) if name == "adalomo" else (Lomo, FusedLomo)
    build = in_backward_or_not(plain, fused, chosen["clip"], name)
    return build(as_groups(param_groups), lr=lr, weight_decay=weight_decay, **settings)


def build_muon(
    model: torch.nn.Module,
    param_groups: Groups,
    *,
    lr: float,
    target_modules: str | Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> torch.optim.Optimizer:
    """Muon for the matched linear layers, AdamW for the rest.

    Args:
        model: The model, whose modules `target_modules` names.
        param_groups: Parameters, with a weight decay each.
        lr: Learning rate of both.
        target_modules: See `match_modules`; all linear layers but the output's if not given.
        options: `momentum`, `nesterov`, `ns_steps`, `adjust_lr_fn` ("match_rms_adamw" or "original").
        betas: Of AdamW.
        eps: Of AdamW.
        weight_decay: Of groups that have none of their own.

    Raises:
        OptionError: an option or the targets cannot work, or this torch has no Muon.
    """
    chosen = parse(options or {}, MUON, "muon")
    one_of(chosen, adjust_lr_fn=("match_rms_adamw", "original"))
    matches, hidden = hidden_matrices(model, target_modules)
    logger.info("muon: %d matrices by Muon, the rest by AdamW.", len(hidden))
    groups = split_groups(as_groups(param_groups), hidden, {**chosen, "muon": True})
    if hidden:
        check_targets(groups, "muon", model, matches.names)
    for group in groups:
        if not group.get("muon"):
            group.update(betas=betas, eps=eps)
    return MuonWithAdamW(groups, lr=lr, weight_decay=weight_decay)


def as_groups(given: Any) -> Groups:
    """Parameter groups, or parameters alone as one group.

    Raises:
        OptionError: it is neither.
    """
    try:
        groups = list(given)
    except TypeError:
        groups = [given]
    if groups and all(isinstance(parameter, torch.Tensor) for parameter in groups):
        return [{"params": groups}]
    for group in groups:
        if not (isinstance(group, dict) and "params" in group):
            fix = 'give groups, such as [{"params": list(model.parameters()), "weight_decay": 0.01}]'
            raise OptionError("param_groups", type(group).__name__, fix)
    return [
        {**group, "params": [group["params"]] if isinstance(group["params"], torch.Tensor) else list(group["params"])}
        for group in groups
    ]


def check_targets(groups: Groups, mark: str, model: torch.nn.Module, names: Sequence[str]) -> None:
    """Refuse groups none of whose parameters is a target.

    Raises:
        OptionError: the groups are of another model than the targets, or leave them out.
    """
    if groups and not any(group.get(mark) for group in groups):
        raise OptionError(
            "param_groups", f"without the weights of {', '.join(names[:3])}",
            f"give the parameters of the very {type(model).__name__} that is trained, those layers among them",
        )  # fmt: skip


def parse_with_clip(
    given: Mapping[str, str] | None, known: Mapping[str, Any], name: str, in_backward: bool
) -> dict[str, Any]:
    chosen = parse(given or {}, {**known, **(CLIP if in_backward else {})}, name)
    chosen.setdefault("clip", "none")
    one_of(chosen, clip=("none", "global"))
    return chosen


def check_low_rank(chosen: Mapping[str, Any]) -> None:
    at_least(chosen, rank=1, update_proj_gap=1, scale=0)
    one_side = ("std", "reverse_std", "right", "left")
    if "svd" in chosen:
        one_of(chosen, svd=("warm", "full"), proj_type=(*one_side, "full"))
    else:
        one_of(chosen, scale_type=("channel", "tensor"), proj_type=one_side)


def split_groups(groups: Groups, targets: Sequence[torch.nn.Parameter], low_rank: Mapping[str, Any]) -> Groups:
    """Each group in two: its targets, with the low-rank settings, and the rest."""
    chosen = {id(parameter) for parameter in targets}
    split: Groups = []
    for group in groups:
        settings = {key: value for key, value in group.items() if key != "params"}
        parameters = list(group["params"])
        rest = [parameter for parameter in parameters if id(parameter) not in chosen]
        low = [parameter for parameter in parameters if id(parameter) in chosen]
        split += [{**settings, "params": rest}] if rest else []
        split += [{**settings, **low_rank, "params": low}] if low else []
    return split


def in_backward_or_not(
    plain: type[PerParameter], fused: type[PerParameter] | None, clip: str, name: str
) -> Callable[..., PerParameter]:
    """The class that updates inside backward, unless the norm over all gradients is to limit the update."""
    if fused is None:
        return plain
    if clip == "global":
        logger.info("%s: clip=global keeps all gradients until their norm is known, which takes their memory.", name)
        return plain
    logger.info(
        "%s: updates happen inside the backward pass, before the norm over all gradients is known, so max_grad_norm "
        "limits nothing; optim_args 'clip=global' applies it, at the cost of keeping the gradients.",
        name,
    )
    return fused


galore_adamw: Builder = partial(build_low_rank, name="galore_adamw")
galore_adafactor: Builder = partial(build_low_rank, name="galore_adafactor")
galore_adamw_8bit: Builder = partial(build_low_rank, name="galore_adamw_8bit")
galore_adamw_layerwise: Builder = partial(build_low_rank, name="galore_adamw", layerwise=True)
galore_adafactor_layerwise: Builder = partial(build_low_rank, name="galore_adafactor", layerwise=True)
galore_adamw_8bit_layerwise: Builder = partial(build_low_rank, name="galore_adamw_8bit", layerwise=True)
lomo: Builder = partial(build_lomo, name="lomo")
adalomo: Builder = partial(build_lomo, name="adalomo")
apollo_adamw: Builder = partial(build_low_rank, name="apollo_adamw")
apollo_adamw_layerwise: Builder = partial(build_low_rank, name="apollo_adamw", layerwise=True)
apollo_mini: Builder = partial(build_low_rank, name="apollo_mini")
apollo_mini_layerwise: Builder = partial(build_low_rank, name="apollo_mini", layerwise=True)
muon: Builder = build_muon
BY_NAME: dict[str, Builder] = {
    "galore_adamw": galore_adamw,
    "galore_adamw_layerwise": galore_adamw_layerwise,
    "galore_adafactor": galore_adafactor,
    "galore_adafactor_layerwise": galore_adafactor_layerwise,
    "galore_adamw_8bit": galore_adamw_8bit,
    "galore_adamw_8bit_layerwise": galore_adamw_8bit_layerwise,
    "lomo": lomo,
    "adalomo": adalomo,
    "apollo_adamw": apollo_adamw,
    "apollo_adamw_layerwise": apollo_adamw_layerwise,
    "apollo_mini": apollo_mini,
    "apollo_mini_layerwise": apollo_mini_layerwise,
    "muon": muon,
}
