"""Optimizers whose state comes back from a state dict as it was, type for type."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from .checks import Shapes, check_dense, check_group, check_loaded_group, check_loaded_state


class ExactState(torch.optim.Optimizer):
    """torch casts loaded state to the type of the parameter; here a float32 or 8-bit state stays what it was."""

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self._prepare()
        super().__init__(params, defaults)

    def _prepare(self) -> None:
        """Make what is not part of the optimizer's state, before it has groups; also in a copy of it."""

    def _take(self, group: dict[str, Any]) -> None:
        """Note a group that has just come; also in a copy of the optimizer."""

    def _settings(self) -> tuple[str, ...]:
        """Names of what any group may set."""
        return tuple(self.defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, at any time.

        Raises:
            OptionError: a setting or a parameter cannot work; the group is not added.
        """
        super().add_param_group(param_group)
        try:
            check_group(self.param_groups[-1], self._settings())
            self._take(self.param_groups[-1])
        except ValueError:
            self.param_groups.pop()
            raise

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "defaults" in state:  # a copy or an unpickled one, not load_state_dict, which has no defaults
            self._prepare()
            for group in self.param_groups:
                self._take(group)

    def _state_shapes(self, parameter: torch.Tensor, group: dict[str, Any]) -> Shapes | None:
        """Names and shapes of the tensors that the state of a parameter may hold; None where that is not checked."""
        return None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a saved state; as with torch, the groups' settings are those saved.

        Raises:
            ValueError: the groups are not as many, or not as large.
            OptionError: the state is another optimizer's or of another model; nothing is changed.
        """
        self._check_loaded(state_dict)
        super().load_state_dict(state_dict)
        numbers = (number for group in state_dict["param_groups"] for number in group["params"])
        parameters = (parameter for group in self.param_groups for parameter in group["params"])
        for number, parameter in zip(numbers, parameters, strict=True):
            for name, value in state_dict["state"].get(number, {}).items():
                if isinstance(value, torch.Tensor):
                    self.state[parameter][name] = value.detach().clone().to(parameter.device)

    def _check_loaded(self, state_dict: dict[str, Any]) -> None:
        """What torch does not look at; whether the groups are as many and as large, it does."""
        mine = type(self).__name__
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=False):
            check_loaded_group(saved, (name for name in self._settings() if name in group), mine)
            for parameter, number in zip(group["params"], saved["params"], strict=False):
                shapes = self._state_shapes(parameter, saved)
                if shapes is not None:
                    check_loaded_state(state_dict["state"].get(number, {}), shapes, mine)


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
        """Update every parameter that has a gradient.

        Raises:
            OptionError: a gradient is sparse.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    check_dense(parameter.grad)
                    self.apply_gradient(parameter, parameter.grad, group)
        return loss
