"""One micro-batch: its loss in either signature, its share of the step, its backward pass."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from .first_batch import check_batch, tells_batch

if TYPE_CHECKING:
    from .trainer import Trainer

Count = torch.Tensor | int | None


def training_step(trainer: Trainer, model: torch.nn.Module, inputs: Any, count: Count) -> torch.Tensor:
    """Forward and backward; see `Trainer.training_step`."""
    if not model.training:
        model.train()
    if not trainer.saw_batch:
        check_batch(trainer.model, inputs)
    share = loss_share(trainer, inputs, count)
    inputs = trainer.prepare_inputs(inputs)
    told = contextlib.nullcontext() if trainer.saw_batch else tells_batch(trainer.model, inputs)
    with told, trainer.compute_loss_context_manager():
        if trainer.loss_call.takes_count:
            loss = trainer.compute_loss(model, inputs, num_items_in_batch=count)
        else:
            loss = trainer.compute_loss(model, inputs)
    trainer.saw_batch = True
    if share is not None:
        loss = loss * share
    trainer.engine.release_cache(trainer.state.global_step)
    trainer.engine.backward(loss)
    detached: torch.Tensor = loss.detach()
    return detached


def loss_share(trainer: Trainer, inputs: Any, count: Count) -> Any:
    """What to multiply a batch's loss by; None for nothing. A mean counts by its share of the targets."""
    if count is None:
        return None
    divided = trainer.loss_call.divides if trainer.loss_is_scaled_for_ga is None else trainer.loss_is_scaled_for_ga
    world = trainer.engine.world_size if trainer.args.average_tokens_across_devices else 1
    if divided:
        return world if world > 1 else None
    return trainer.loss_rule.targets(inputs) * world / count


def count_items(trainer: Trainer, window: list[Any]) -> Count:
    """Targets of one step; see `Trainer.count_items`."""
    one_batch = len(window) == 1 and trainer.engine.world_size == 1
    if one_batch and not (trainer.loss_rule.divides_by_count or trainer.loss_call.wants_count):
        return None
    count = sum(trainer.loss_rule.targets(batch) for batch in window)
    if trainer.engine.world_size > 1 and trainer.args.average_tokens_across_devices:
        count = trainer.engine.sum(count)
    return count.to(trainer.engine.device) if isinstance(count, torch.Tensor) else count


def evaluation_loss(trainer: Trainer, model: torch.nn.Module, inputs: Any) -> tuple[torch.Tensor, Any]:
    """The mean loss of a batch and its outputs, by `Trainer.compute_loss`."""
    compute: Any = trainer.compute_loss
    if not trainer.loss_call.takes_count:
        loss, outputs = compute(model, inputs, return_outputs=True)
    else:
        count = trainer.loss_rule.targets(inputs) if trainer.loss_rule.divides_by_count else None
        loss, outputs = compute(model, inputs, return_outputs=True, num_items_in_batch=count)
    return loss, outputs
