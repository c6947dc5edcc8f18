"""Finds out, by running the model on two short examples, how the examples of a packed row are kept apart in it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from mudarrib.core_loop import ArgumentError

from .attention import go_as_usual, go_by_example
from .isolation import Isolation

LENGTHS = (6, 7)
_isolated: WeakKeyDictionary[nn.Module, Isolation] = WeakKeyDictionary()


def isolate(model: nn.Module, argument: str = "packing") -> Isolation:
    """Make packed batches exact in a model, or refuse.

    The packed pair must give the logits that each example gives alone, and the second example's logits must not move
    when the first is replaced. Positions alone are tried first, then a mask with borders in each layer.

    Args:
        model: A causal language model of transformers, on the device where it can run.
        argument: The argument that asked for packed batches, for the message.

    Where the model uses SDPA on a CPU, its attention goes by example from then on: `config._attn_implementation` is
    then "sdpa_by_example".

    Returns:
        The hooks, in place on the model; `Isolation.remove` takes them off.

    Raises:
        ArgumentError: neither keeps the examples apart (state-space models, for one).
    """
    if model in _isolated:  # by an earlier trainer
        _isolated.pop(model).remove()
    go_as_usual(model)
    subject = probed_model(model)
    evidence = []
    for in_layers in (False, True):
        isolation = Isolation(subject, in_layers)
        try:
            excess = crosstalk(subject)
        except (TypeError, ValueError, RuntimeError, IndexError) as error:
            excess = float("inf")
            evidence.append(f"a packed batch fails in it: {error}")
        if excess > 1:
            isolation.remove()
            evidence.append(f"the logits change {excess:.0f} times more than rounding can")
        else:
            if go_by_example(model) and subject is model and crosstalk(model) > 1:
                go_as_usual(model)
            _isolated[model] = isolation if subject is model else Isolation(model, in_layers)
            return _isolated[model]
    raise ArgumentError(argument, True, _refusal(model, evidence[0]))


def _refusal(model: nn.Module, evidence: str) -> str:
    return (
        f"{type(model).__name__} can't keep the examples of a packed row apart, neither by position ids nor by an "
        f"attention mask ({evidence}), so that training would be silently wrong; train it with packing=False and "
        "padding_free=False"
    )


def probed_model(model: nn.Module) -> nn.Module:
    """The model or, where its weights are elsewhere (meta device, sharded), a shallow one from its config."""
    if all(p.numel() and not p.is_meta for p in model.parameters()):
        return model
    config: Any = copy.deepcopy(model.config)
    config.num_hidden_layers = min(2, config.num_hidden_layers)
    with torch.random.fork_rng(devices=[]):
        return type(model)(config)


@torch.no_grad()
def crosstalk(model: nn.Module) -> float:
    """How far packing moves the logits of two short examples, in units of what rounding may do; at most 1 is exact."""
    device = next(model.parameters()).device
    first, second, other = _examples(model, device)
    with _evaluating(model):
        packed, again, changed = (_packed(model, row, second) for row in (first, first, other))
        alone = torch.cat([_logits(model, row, None) for row in (first, second)], dim=1)
    eps = torch.finfo(packed.dtype).eps
    scale = float(alone.abs().max()) or 1.0
    moved = (packed - alone).abs().max() / (scale * max(1e-4, 8 * eps))
    # Where nothing leaks the same sums are made of the same numbers: only what varies between equal runs is allowed.
    noise = float((packed - again).abs().max())
    leaked = (packed - changed)[:, LENGTHS[0] :].abs().max() / (scale * 1e-5 + 2 * noise)
    return float(torch.nan_to_num(torch.maximum(moved, leaked), nan=float("inf")))


def _packed(model: nn.Module, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    positions = torch.cat([torch.arange(row.shape[1], device=row.device) for row in (first, second)])[None]
    return _logits(model, torch.cat([first, second], dim=1), positions)


def _logits(model: nn.Module, input_ids: torch.Tensor, position_ids: torch.Tensor | None) -> torch.Tensor:
    extra = {} if position_ids is None else {"position_ids": position_ids}
    logits: torch.Tensor = model(input_ids=input_ids, use_cache=False, **extra).logits
    return logits


def _examples(model: nn.Module, device: torch.device) -> list[torch.Tensor]:
    """Three short rows of ordinary tokens, each of shape (1, tokens); the third replaces the first."""
    config: Any = model.config
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    special = {getattr(config, f"{name}_token_id", None) for name in ("pad", "bos", "eos")}
    usable = [token for token in range(min(config.vocab_size, 1000)) if token not in special]
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(len(usable), (n,), generator=generator) for n in (*LENGTHS, LENGTHS[0])]
    return [torch.tensor([usable[i] for i in row.tolist()], device=device)[None] for row in rows]


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
