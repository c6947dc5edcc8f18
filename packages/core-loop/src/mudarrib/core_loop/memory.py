"""Memory that a stage of a run took, where the arguments ask for it."""

from __future__ import annotations

import resource

import torch


class MemoryMeter:
    """Peak memory in bytes, added to the metrics unless `skip_memory_metrics` is set."""

    def __init__(self, skip: bool, device: torch.device) -> None:
        self.skip = skip
        self.device = device

    def add_metrics(self, stage: str, metrics: dict[str, float]) -> None:
        """Add `<stage>_mem_cpu_peak` and, with a GPU, `<stage>_mem_gpu_peak`; the peak since the process began."""
        if self.skip:
            return
        metrics[f"{stage}_mem_cpu_peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if self.device.type == "cuda":
            metrics[f"{stage}_mem_gpu_peak"] = torch.cuda.max_memory_allocated(self.device)
