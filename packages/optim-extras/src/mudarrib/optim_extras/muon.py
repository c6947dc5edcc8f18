"""Muon by torch for hidden matrices, AdamW for the rest, as one optimizer."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from .checks import Shapes, check_dense
from .errors import OptionError
from .exact_state import PerParameter

ADAMW: dict[str, object] = {"betas": (0.9, 0.999), "eps": 1e-8}
MUON: dict[str, object] = {"momentum": 0.95, "nesterov": True, "ns_steps": 5, "adjust_lr_fn": "match_rms_adamw"}


class MuonWithAdamW(PerParameter):
    """Groups with `muon=True` are stepped by `torch.optim.Muon`, the others by `torch.optim.AdamW`.

    Args:
        params: Groups; those of Muon hold matrices only.
        lr: Learning rate, of both kinds: Muon's updates are scaled to AdamW's size (arXiv 2502.16982).
        weight_decay: Decoupled decay.

    Raises:
        OptionError: this torch has no Muon; it came with 2.9. Or weights are float16, in which torch's AdamW overflows.
    """

    def __init__(self, params: Any, lr: float = 1e-3, weight_decay: float = 0.0) -> None:
        if not hasattr(torch.optim, "Muon"):
            raise OptionError("optim", "muon", f"torch {torch.__version__} has none: pip install 'torch>=2.9'")
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "muon": False})

    def _prepare(self) -> None:
        super()._prepare()
        self._inner: dict[bool, torch.optim.Optimizer] = {}

    def _settings(self) -> tuple[str, ...]:
        return (*super()._settings(), *MUON, *ADAMW)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        muon = bool(param_group.get("muon", False))
        super().add_param_group({**(MUON if muon else ADAMW), **param_group, "muon": muon})

    def _take(self, group: dict[str, Any]) -> None:
        super()._take(group)
        if any(parameter.dtype == torch.float16 for parameter in group["params"]):
            raise OptionError("optim", "muon", "float16 weights overflow: load the model in bfloat16 or float32")
        # Made for each group, since making it fills in the group's other settings.
        self._inner[group["muon"]] = (torch.optim.Muon if group["muon"] else torch.optim.AdamW)([group])

    def _state_shapes(self, parameter: torch.Tensor, group: dict[str, Any]) -> Shapes:
        names = ("momentum_buffer",) if group["muon"] else ("exp_avg", "exp_avg_sq")
        return dict.fromkeys(names, tuple(parameter.shape))

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Step both kinds; the groups and the state are this optimizer's, so that schedules and resuming hold."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for parameter in (parameter for group in self.param_groups for parameter in group["params"]):
            if parameter.grad is not None:
                check_dense(parameter.grad)
        for muon, inner in self._inner.items():
            groups = [group for group in self.param_groups if group["muon"] is muon]
            inner.param_groups = [self._by_muon_in_shards(group) if muon else group for group in groups]
            inner.state = self.state
            inner.step()
        return loss

    def _by_muon_in_shards(self, group: dict[str, Any]) -> dict[str, Any]:
        """Step the sharded matrices of a group, whole one by one; returns the group with what is left."""
        sharded = [p for p in group["params"] if isinstance(p, DTensor)]
        for parameter in sharded:
            if parameter.grad is not None:
                self.apply_gradient(parameter, parameter.grad, group)
        return {**group, "params": [p for p in group["params"] if not isinstance(p, DTensor)]}

    def update(
        self, parameter: torch.Tensor, gradient: torch.Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Step one whole matrix by Muon. torch multiplies shards too, but rounds their sums in bfloat16."""
        inner = self._inner[True]
        parameter.grad = gradient
        inner.param_groups = [{**group, "params": [parameter]}]
        inner.state = defaultdict(dict, {parameter: state})
        inner.step()
