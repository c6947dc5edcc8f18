"""Optimizers whose state comes back from a state dict as it was, type for type."""

from __future__ import annotations

from typing import Any

import torch


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

    def update(self, parameter: torch.nn.Parameter, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        """Update one parameter by its gradient."""
        raise NotImplementedError

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
                    self.update(parameter, parameter.grad, group)
        return loss
