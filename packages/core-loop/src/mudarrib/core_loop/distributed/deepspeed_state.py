"""The state of an optimizer under ZeRO, whole: as one process would save it, so that any layout reads it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

MASTERS = "float32"
SCALER = "loss_scaler"


class DeepSpeedState:
    """A `Stateful` that gathers what DeepSpeed has split and splits it again; no file of DeepSpeed's own is written.

    Args:
        optimizer: DeepSpeed's, around the one that updates.
        groups: The model's parameters in the order of the groups that it was made of.
    """

    def __init__(self, optimizer: Any, groups: list[list[torch.nn.Parameter]]) -> None:
        self.optimizer = optimizer
        self.groups = groups

    @property
    def inner(self) -> torch.optim.Optimizer:
        inner: torch.optim.Optimizer = self.optimizer.optimizer
        return inner

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [parameter for group in self.groups for parameter in group]

    def state_dict(self) -> dict[str, Any]:
        """The state with parameters numbered in the order of the groups, as `Optimizer.state_dict` has it.

        Weights that are trained in half precision come with their float32 masters.
        """
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        flat: dict[str, Any] = next((state for state in self.inner.state.values() if state), {})
        split = [name for name, value in flat.items() if isinstance(value, torch.Tensor) and value.dim()]
        same = {name: value for name, value in flat.items() if name not in split}
        if flat:
            self._link()
        state, masters = {}, {}
        for number, parameter in enumerate(self._parameters()):
            if flat:
                whole = {name: shaped(safe_get_full_optimizer_state(parameter, name), parameter) for name in split}
                state[number] = {name: copied(value) for name, value in same.items()} | whole
            if parameter.dtype != torch.float32:
                masters[number] = shaped(safe_get_full_fp32_param(parameter), parameter)
        numbers = iter(range(len(self._parameters())))
        groups = [
            {**options(group), "params": [next(numbers) for _ in params]}
            for group, params in zip(self.inner.param_groups, self.groups, strict=False)
        ]
        scaler = {name: value for name, value in vars(self._scaler()).items() if isinstance(value, int | float)}
        return {"state": state, "param_groups": groups, MASTERS: masters, SCALER: scaler}

    def _scaler(self) -> Any:
        return getattr(self.optimizer, "loss_scaler", None) or object.__new__(type("Nothing", (), {}))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put such a state back, also one of a single process."""
        saved = state_dict["state"]
        self._make_room(next(iter(saved.values()), {}))
        for number, parameter in enumerate(self._parameters()):
            for name, value in saved.get(number, {}).items():
                if isinstance(value, torch.Tensor) and value.dim():
                    put(parameter, value, name)
            if number in state_dict.get(MASTERS, {}):
                put(parameter, state_dict[MASTERS][number])
        for group, before in zip(self.inner.param_groups, state_dict["param_groups"], strict=False):
            group.update(options(before))
        vars(self._scaler()).update(state_dict.get(SCALER, {}))

    def _shares(self) -> list[torch.Tensor]:
        """This process's flat float32 weights, which the inner optimizer updates."""
        stage_3 = getattr(self.optimizer, "fp32_partitioned_groups_flat", None)
        shares: list[torch.Tensor] = self.optimizer.single_partition_of_fp32_groups if stage_3 is None else stage_3
        return shares

    def _make_room(self, example: dict[str, Any]) -> None:
        """Give each flat share an empty state like that of a parameter: DeepSpeed makes it only at the first step."""
        for share in self._shares() if example else []:
            self.inner.state[share] = {
                name: torch.zeros_like(share) if isinstance(value, torch.Tensor) and value.dim() else copied(value)
                for name, value in example.items()
            }
        if example:
            self._link()

    def _link(self) -> None:
        """Let parameters find their share of the state.

        Stages 1 and 2 do this when the first group has stepped, when the others have no state yet.
        """
        link = getattr(self.optimizer, "_lazy_init_hp_params_optimizer_state", None)
        if link is not None:
            self.optimizer._hp_optimizer_states_linked = False
            link()


def put(parameter: torch.nn.Parameter, value: torch.Tensor, name: str | None = None) -> None:
    """Set the float32 master of a parameter, or a state of its optimizer, from the whole tensor."""
    from deepspeed import utils

    value = value.detach().to(parameter.device, torch.float32)
    share = getattr(parameter, "ds_tensor", None)
    if share is None:
        own, arguments = "full", (parameter, value)
    else:
        # Its own way fails where the entries cannot be shared out evenly and the last process has fewer.
        size = share.numel()
        begin = size * dist.get_rank()
        flat = torch.nn.functional.pad(value.flatten(), (0, size * dist.get_world_size()))
        own, arguments = "local", (parameter, flat[begin : begin + size])
    if name is None:
        getattr(utils, f"safe_set_{own}_fp32_param")(*arguments)
    else:
        getattr(utils, f"safe_set_{own}_optimizer_state")(*arguments, name)


def shaped(value: torch.Tensor, parameter: torch.nn.Parameter) -> torch.Tensor:
    return value.detach().cpu().reshape(getattr(parameter, "ds_shape", parameter.shape))


def copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def options(group: dict[str, Any]) -> dict[str, Any]:
    """Settings of a parameter group, without its parameters."""
    return {name: value for name, value in group.items() if name != "params"}
