"""Training over several processes: DDP, FSDP and DeepSpeed through accelerate, which only these files import."""

from __future__ import annotations

from typing import Any

from .. import launched
from ..engine import Engine


def engine_for(args: Any) -> Engine:
    """The engine of the kind that the arguments or the launcher ask for."""
    if args.deepspeed or launched.plugin("DEEPSPEED"):
        from .deepspeed import DeepSpeedEngine

        return DeepSpeedEngine(args)
    if args.fsdp or launched.plugin("FSDP"):
        from .fsdp import FsdpEngine

        return FsdpEngine(args)
    from .engine import DistributedEngine

    return DistributedEngine(args)


def is_asked_for(args: Any) -> bool:
    """Whether a run needs more than one process on torch alone."""
    several = args.world_size > 1 or args.parallelism_config
    return bool(several or args.deepspeed or args.fsdp or launched.plugin("DEEPSPEED") or launched.plugin("FSDP"))
