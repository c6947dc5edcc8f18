"""Optimizers whose state comes back from a state dict as it was, type for type."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor, distribute_tensor


class ExactState(torch.optim.Optimizer):
    """torch casts loaded state to the type of the parameter; here a float32 or 8-bit state stays what it was."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        numbers = (number for group in state_dict["param_groups"] for number in group["params"])
        parameters = (parameter for group in self.param_groups for parameter in group["params"])
        for number, parameter in zip(numbers, parameters, strict=True):
            for name, value in state_dict["state"].get(number, {}).items():
                if isinstance(value, torch.Tensor):
                    self.state[parameter][name] = value.detach().clone().to(parameter.device)


class PerParameter(ExactState):
    """An optimizer that updates one parameter at a time: in `step()`, or inside backward."""

    def update(
        self, parameter: torch.Tensor, gradient: torch.Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Update one parameter by its gradient; `state` is what the optimizer keeps for it."""
        raise NotImplementedError

    def is_elementwise(self, group: dict[str, Any]) -> bool:
        """Whether each entry's update needs that entry alone, so that shards can be updated by themselves."""
        return False

    def apply_gradient(self, parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        """Update one parameter, whole or sharded over processes.

        What needs the whole matrix gathers it, one parameter at a time; every process computes the same update
        and keeps its shard of the result.
        """
        state = self.state[parameter]
        if not isinstance(parameter, DTensor) or self.is_elementwise(group):
            self.update(parameter, gradient, state, group)
            return
        whole = parameter.full_tensor().detach()
        whole_gradient = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
        self.update(whole, whole_gradient, state, group)
        shards = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
        parameter.copy_(shards)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.apply_gradient(parameter, parameter.grad, group)
        return loss
