"""Optimizers that look at whole matrices, refused where a way to shard leaves them none.

Without a word they would train differently from one process, or fail late on an error about shapes.
"""

from __future__ import annotations

import torch

from ..engine import StepsInBackward
from ..errors import ArgumentError

NAMES = ("galore", "apollo", "muon", "adafactor", "lomo", "adalomo")


def name_of(optimizer: torch.optim.Optimizer | str) -> str:
    return optimizer if isinstance(optimizer, str) else type(optimizer).__name__


def looks_at_matrices(optimizer: torch.optim.Optimizer | str) -> bool:
    """Whether a value of `optim`, or an optimizer itself, reads a gradient as a matrix."""
    return name_of(optimizer).lower().startswith(NAMES) or isinstance(optimizer, StepsInBackward)


def check_for_fsdp(optimizer: torch.optim.Optimizer | str, version: int) -> None:
    """Refuse what a version of FSDP leaves without matrices.

    Raises:
        ArgumentError: names the optimizer and what to take instead.
    """
    if not looks_at_matrices(optimizer):
        return
    name = name_of(optimizer)
    if name.lower() == "adafactor":
        fix = "it mixes shards with whole tensors under FSDP: take optim='adamw_torch_fused', or DDP"
        raise ArgumentError("optim", name, fix)
    if version == 1:
        fix = 'it needs whole matrices, and FSDP 1 keeps flat pieces: set fsdp_config={"version": 2}'
        raise ArgumentError("optim", name, fix)


def check_for_deepspeed(optimizer: torch.optim.Optimizer, stage: int) -> None:
    """Refuse what a stage of ZeRO leaves without matrices, or what steps before DeepSpeed does.

    Raises:
        ArgumentError: names the optimizer and what to take instead.
    """
    name = name_of(optimizer)
    if isinstance(optimizer, StepsInBackward):
        raise ArgumentError("optim", name, "DeepSpeed steps by itself: take one that does not step inside backward")
    if stage > 0 and looks_at_matrices(optimizer):
        fix = f"it needs whole matrices, and DeepSpeed's stage {stage} keeps flat pieces: take FSDP 2, or stage 0"
        raise ArgumentError("optim", name, fix)
