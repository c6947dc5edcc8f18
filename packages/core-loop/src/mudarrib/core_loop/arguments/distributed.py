"""Several processes: DDP, FSDP, DeepSpeed; which process this is, and on which device."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .field import argument

if TYPE_CHECKING:
    import torch


@dataclass
class DistributedArguments:
    use_cpu: bool = argument(False, "Train on the CPU, even if there is an accelerator.")
    local_rank: int = argument(-1, "Number of this process on its machine; the launcher's environment says it.")
    ddp_backend: str | None = argument(None, "Backend of torch.distributed: nccl, gloo, mpi ...; by default by device.")
    ddp_timeout: int = argument(1800, "Seconds before a collective call gives up.")
    ddp_find_unused_parameters: bool | None = argument(None, "DDP's find_unused_parameters.")
    ddp_bucket_cap_mb: int | None = argument(None, "DDP's bucket_cap_mb.")
    ddp_broadcast_buffers: bool | None = argument(None, "DDP's broadcast_buffers.")
    ddp_static_graph: bool | None = argument(None, "DDP's static_graph.")
    fsdp: str | None = argument(
        None, "FSDP: 'true', or the words 'full_shard', 'shard_grad_op', 'auto_wrap', 'offload' together."
    )
    fsdp_config: dict[str, Any] | str | None = argument(None, "Settings of FSDP, as a dict or the path of a JSON file.")
    deepspeed: dict[str, Any] | str | None = argument(
        None, "DeepSpeed's settings, as a dict or the path of a JSON file."
    )
    parallelism_config: Any = argument(None, "accelerate's ParallelismConfig: sizes of tensor and context parallelism.")

    @property
    def world_size(self) -> int:
        """Number of processes, as the launcher set it."""
        return int(os.environ.get("WORLD_SIZE", "1"))

    @property
    def process_index(self) -> int:
        """Number of this process among all."""
        return int(os.environ.get("RANK", "0"))

    @property
    def local_process_index(self) -> int:
        """Number of this process on its machine."""
        return int(os.environ.get("LOCAL_RANK", max(self.local_rank, 0)))

    @property
    def n_gpu(self) -> int:
        """Accelerators of this process: 1, or 0 on the CPU. Several are used by several processes."""
        return 0 if self.device.type == "cpu" else 1

    @cached_property
    def device(self) -> torch.device:
        """The device of this process: an accelerator if there is one and `use_cpu` is False."""
        import torch

        from ..launched import on_cpu

        if not (self.use_cpu or on_cpu()):
            for kind in ("cuda", "xpu", "npu"):
                backend = getattr(torch, kind, None)
                if backend is not None and backend.is_available():
                    return torch.device(kind, self.local_process_index)
            if torch.backends.mps.is_available():
                return torch.device("mps")
        return torch.device("cpu")

    @property
    def ddp_timeout_delta(self) -> timedelta:
        return timedelta(seconds=self.ddp_timeout)

    @contextlib.contextmanager
    def main_process_first(self, local: bool = True, desc: str = "work") -> Iterator[None]:
        """Let the main process do something before the others do it, such as filling a cache.

        Under a launcher this joins the processes, if nothing has yet: it may come before there is a Trainer.

        Args:
            local: First on each machine, for folders that are not shared; else first of all.
            desc: What is done, for people who read this.
        """
        if self.world_size == 1:
            yield
            return
        import torch.distributed as dist

        from ..distributed.engine import join

        if not dist.is_initialized():
            join(self)
        is_main = (self.local_process_index if local else self.process_index) == 0
        if not is_main:
            dist.barrier()
        try:
            yield
        finally:
            if is_main:
                dist.barrier()
