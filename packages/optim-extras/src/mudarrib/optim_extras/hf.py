"""These optimizers in transformers' Trainer, which is not imported here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import builders


class Factory:
    """What `transformers.Trainer` calls with the model to get the optimizer."""

    def __call__(self, model: torch.nn.Module, **settings: Any) -> torch.optim.Optimizer:
        build = getattr(builders, settings.pop("name"))
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer: torch.optim.Optimizer = build(model, [{"params": trained}], **settings)
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

    Only optimizers that step in `step()` fit that Trainer's loop: galore_adamw, galore_adafactor and
    galore_adamw_8bit, and lomo and adalomo with the option {"clip": "global"}.

    Args:
        name: One of the builders' names.
        lr: Learning rate.
        target_modules: For GaLore, see `match_modules`.
        options: Options as text, see the builder.
        betas: Decay of the moments.
        eps: Added to the root of the second moment.
        weight_decay: Decay of all trained parameters.
    """
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
