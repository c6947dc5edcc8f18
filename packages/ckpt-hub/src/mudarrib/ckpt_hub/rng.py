"""The random state of a process: Python, NumPy, torch on the CPU and on each device."""

from __future__ import annotations

import hashlib
import random
from types import ModuleType
from typing import Any

import numpy as np
import torch

from .errors import CheckpointError
from .ranks import world_size

_DEVICES = ("cuda", "xpu", "mps")


class RngState:
    """A part that saves and restores every global random generator of its process.

    Each rank keeps its own. A rank that a checkpoint has no state for (more ranks than before) gets one derived
    from the state of another rank and its own number, so that no two ranks draw the same noise, and every resume
    at that size draws the same.
    """

    per_rank = True

    def state_dict(self) -> dict[str, Any]:
        """The states now: "python", "numpy", "torch" and, where there are devices, "devices"."""
        devices = {name: _device_states(module) for name, module in _devices()}
        return {
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "torch": torch.get_rng_state(),
            "devices": {name: states for name, states in devices.items() if states},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put such states back. Devices that are not there any more are passed over.

        Raises:
            CheckpointError: The state is not one of `state_dict`.
        """
        try:
            random.setstate(state_dict["python"])
            np.random.set_state(state_dict["numpy"])
            torch.set_rng_state(state_dict["torch"])
            for name, module in _devices():
                _set_device_states(module, state_dict["devices"].get(name, []))
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise CheckpointError("rng", f"no random state ({error})", "Use an older checkpoint.") from error

    def fork_state_dict(self, state_dict: dict[str, Any], rank: int) -> dict[str, Any]:
        """A state for a rank that has none, made of another rank's state and the rank's number alone."""
        seed = hashlib.sha256(bytes(state_dict["torch"].numpy()) + rank.to_bytes(8, "little")).digest()
        number = int.from_bytes(seed[:8], "little") >> 1
        devices = {
            name: [torch.Generator(name).manual_seed(number).get_state()] for name, _ in _devices() if name != "mps"
        }
        return {
            "python": random.Random(number).getstate(),
            "numpy": np.random.RandomState(number % 2**32).get_state(),
            "torch": torch.Generator().manual_seed(number).get_state(),
            "devices": devices,
        }


def _devices() -> list[tuple[str, ModuleType]]:
    """The kinds of accelerator that are there, with torch's module for each."""
    modules = [(name, getattr(torch, name, None)) for name in _DEVICES]
    return [(name, module) for name, module in modules if module is not None and module.is_available()]


def _device_states(module: ModuleType) -> list[torch.Tensor]:
    if module is torch.mps:
        return [torch.mps.get_rng_state()]
    if not module.is_initialized():  # never used here: asking would start it
        return []
    if world_size() > 1:  # one device a rank; the others belong to other ranks
        return [module.get_rng_state()]
    return list(module.get_rng_state_all())


def _set_device_states(module: ModuleType, states: list[torch.Tensor]) -> None:
    if module is torch.mps:
        for state in states:
            torch.mps.set_rng_state(state)
    elif world_size() > 1:
        for state in states[:1]:
            module.set_rng_state(state)
    else:
        for i, state in enumerate(states[: module.device_count()]):
            module.set_rng_state(state, i)
