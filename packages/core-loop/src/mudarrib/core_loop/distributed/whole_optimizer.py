"""The state of a sharded optimizer, whole: as one process would save it, so that any layout reads it."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)


def whole_state_options(device: torch.device) -> StateDictOptions:
    """How to gather a state: into the first process's memory of the CPU.

    On the CPU itself every process gets it: "moved" there, version 1 would hand out memory that it then frees.
    """
    return StateDictOptions(full_state_dict=True, cpu_offload=device.type != "cpu")


class WholeOptimizer:
    """A `Stateful` that gathers the state of a sharded optimizer and shards it again.

    Every process takes part in both. The first gets the state, in memory of the CPU.

    Args:
        model: The sharded model.
        optimizer: Its optimizer.
        device: The model's.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self.model = model
        self.optimizer = optimizer
        self.options: Any = whole_state_options(device)

    def state_dict(self) -> dict[str, Any]:
        """The state with parameters numbered in the order of the groups, as `Optimizer.state_dict` has it."""
        named: Any = get_optimizer_state_dict(self.model, self.optimizer, options=self.options)
        if not named:
            return {}
        names = self._names(named["param_groups"])
        groups = [dict(group) for group in named["param_groups"]]
        for group in groups:
            group["params"] = [names[name] for name in group["params"]]
        state = {names[name]: values for name, values in named["state"].items()}
        return {"state": dict(sorted(state.items())), "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put such a state back, also one of a single process."""
        now: Any = get_optimizer_state_dict(self.model, self.optimizer)
        numbers = {number: name for name, number in self._names(now["param_groups"]).items()}
        groups = [dict(group) for group in state_dict["param_groups"]]
        for group in groups:
            group["params"] = [numbers[number] for number in group["params"]]
        state = {numbers[number]: values for number, values in state_dict["state"].items()}
        set_optimizer_state_dict(
            self.model,
            self.optimizer,
            {"state": state, "param_groups": groups},
            options=StateDictOptions(full_state_dict=True),
        )

    @staticmethod
    def _names(groups: list[dict[str, Any]]) -> dict[str, int]:
        names = [name for group in groups for name in group["params"]]
        return {name: number for number, name in enumerate(names)}
