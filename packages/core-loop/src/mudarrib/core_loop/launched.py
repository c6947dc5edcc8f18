"""What `accelerate launch` tells a script through the environment, where its own arguments say nothing."""

from __future__ import annotations

import os

from .errors import ArgumentError

YES = ("true", "1", "yes")


def plugin(name: str) -> bool:
    """Whether a plugin was asked for, "FSDP" or "DEEPSPEED"."""
    return os.environ.get(f"ACCELERATE_USE_{name}", "false").lower() in YES


def on_cpu() -> bool:
    """Whether the run is to stay on the CPU."""
    return os.environ.get("ACCELERATE_USE_CPU", "false").lower() in YES


def precision() -> str:
    """The launcher's mixed precision: "no", "fp16" or "bf16".

    Raises:
        ArgumentError: it is one that is not served, such as "fp8".
    """
    said = os.environ.get("ACCELERATE_MIXED_PRECISION", "no").lower()
    if said not in ("no", "fp16", "bf16"):
        raise ArgumentError("mixed_precision", said, "launch with no, fp16 or bf16")
    return said


def dynamo_backend() -> str | None:
    """The backend that the launcher wants the model compiled with; None for not at all."""
    said = os.environ.get("ACCELERATE_DYNAMO_BACKEND", "no").lower()
    return None if said == "no" else said
