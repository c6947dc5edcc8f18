"""These optimizers in transformers' Trainer, which is not imported here."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import torch

from . import builders
from .errors import OptionError
from .fused_backward import FusedBackward


class Factory:
    """What `transformers.Trainer` calls with the model to get the optimizer."""

    def __call__(self, model: torch.nn.Module, **settings: Any) -> torch.optim.Optimizer:
        name = settings.pop("name")
        build = builders.BY_NAME[name]
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer: torch.optim.Optimizer = build(model, [{"params": trained}], **settings)
        if isinstance(optimizer, FusedBackward):
            raise OptionError(
                "name", name, 'this Trainer does not say which micro-batch is the last: give options={"clip": "global"}'
            )
        return optimizer


def for_hf_trainer(
    name: str,
    *,
    lr: float,
    target_modules: str | Sequence[str] | None = None,
    options: dict[str, str] | None = None,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> tuple[type[Factory], dict[str, Any]]:
    """The pair for `transformers.Trainer(optimizer_cls_and_kwargs=...)`.

    Only optimizers that update in `step()` fit that Trainer's loop: galore_adamw, galore_adafactor,
    galore_adamw_8bit, apollo_adamw, apollo_mini and muon as they are; lomo, adalomo and the names that end in
    _layerwise with the option {"clip": "global"}.

    Args:
        name: One of `builders.BY_NAME`.
        lr: Learning rate.
        target_modules: For GaLore, see `match_modules`.
        options: Options as text, see the builder.
        betas: Decay of the moments.
        eps: Added to the root of the second moment.
        weight_decay: Decay of all trained parameters.

    Raises:
        OptionError: no optimizer has that name. Later, when the Trainer builds it: an option or the targets cannot
            work, or the optimizer would update inside the backward pass.
    """
    if name not in builders.BY_NAME:
        near = difflib.get_close_matches(name, list(builders.BY_NAME), 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise OptionError("name", name, f"{hint}the known ones are {', '.join(builders.BY_NAME)}")
    settings = {
        "name": name,
        "lr": lr,
        "target_modules": target_modules,
        "options": options,
        "betas": betas,
        "eps": eps,
        "weight_decay": weight_decay,
    }
    return Factory, settings
