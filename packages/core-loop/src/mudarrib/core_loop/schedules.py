"""Learning-rate schedules by the field's names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from .errors import ArgumentError

Factor = Callable[[int], float]


class FactorLR(LambdaLR):
    """torch's LambdaLR with the rate written straight into the parameter groups at each step."""

    def step(self, epoch: int | None = None) -> None:
        if epoch is not None or any(isinstance(group["lr"], torch.Tensor) for group in self.optimizer.param_groups):
            super().step(epoch)
            return
        self._step_count += 1
        self.last_epoch += 1
        rates = []
        for group, base, factor in zip(self.optimizer.param_groups, self.base_lrs, self.lr_lambdas, strict=True):
            group["lr"] = base * factor(self.last_epoch)
            rates.append(group["lr"])
        self._last_lr = rates


def constant(warmup: int, total: int) -> Factor:
    return lambda step: 1.0


def constant_with_warmup(warmup: int, total: int) -> Factor:
    return lambda step: step / max(1.0, warmup) if step < warmup else 1.0


def linear(warmup: int, total: int) -> Factor:
    """Up from 0 during the warm-up, then down to 0 at the last step."""

    def factor(step: int) -> float:
        if step < warmup:
            return step / max(1, warmup)
        return max(0.0, (total - step) / max(1, total - warmup))

    return factor


def cosine(warmup: int, total: int, num_cycles: float = 0.5) -> Factor:
    """Up from 0 during the warm-up, then down to 0 along a cosine (SGDR, arXiv 1608.03983, equation 5)."""

    def factor(step: int) -> float:
        if step < warmup:
            return step / max(1, warmup)
        progress = (step - warmup) / max(1, total - warmup)
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * num_cycles * 2.0 * progress)))

    return factor


OWN: dict[str, Callable[..., Factor]] = {
    "constant": constant,
    "constant_with_warmup": constant_with_warmup,
    "linear": linear,
    "cosine": cosine,
}


def create(
    name: str, optimizer: torch.optim.Optimizer, warmup: int, total: int, kwargs: Mapping[str, Any] | None = None
) -> Any:
    """The scheduler of this name; those not written here come from transformers, loaded only then.

    Args:
        name: A name of `lr_scheduler_type`.
        optimizer: Its parameter groups carry the learning rate.
        warmup: Warm-up steps.
        total: Steps of the run.
        kwargs: Further settings of the schedule (`lr_scheduler_kwargs`).

    Raises:
        ArgumentError: the schedule has no such setting.
    """
    try:
        if name in OWN and not (kwargs and name != "cosine"):
            return FactorLR(optimizer, OWN[name](warmup, total, **(kwargs or {})))
        from transformers.optimization import get_scheduler

        return get_scheduler(
            name,
            optimizer=optimizer,
            num_warmup_steps=warmup,
            num_training_steps=total,
            scheduler_specific_kwargs=kwargs,
        )
    except TypeError as error:
        raise ArgumentError("lr_scheduler_kwargs", kwargs, f"settings of {name!r}: {error}") from error


def follows_metric(scheduler: Any) -> bool:
    """Whether the scheduler steps on an evaluation's metric rather than at each optimizer step."""
    return isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau) or type(scheduler).__name__ == "GreedyLR"


class Settings:
    """An optimizer's settings as the arguments give them, to hold against those that a checkpoint brings back.

    Args:
        optimizer: Before its state is loaded.
        scheduler: Likewise.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, scheduler: Any) -> None:
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.groups: list[dict[str, Any]] = [
            {name: value for name, value in group.items() if name not in ("params", "lr")}
            for group in optimizer.param_groups
        ]
        self.base_lrs: list[Any] = list(getattr(scheduler, "base_lrs", []))

    def win(self) -> None:
        """After loading: the settings given now hold, and the schedule goes on from the step reached."""
        for group, now in zip(self.optimizer.param_groups, self.groups, strict=True):
            group.update(now)
        if isinstance(self.scheduler, LambdaLR):
            self.scheduler.base_lrs = self.base_lrs
            step = self.scheduler.last_epoch
            for group, base, factor in zip(
                self.optimizer.param_groups, self.base_lrs, self.scheduler.lr_lambdas, strict=True
            ):
                group["lr"] = base * factor(step)
            self.scheduler._last_lr = [group["lr"] for group in self.optimizer.param_groups]
