"""Several processes with the whole model each: DDP. What it shares with FSDP and DeepSpeed, too."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import accelerate
import numpy as np
import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs, InitProcessGroupKwargs

from .. import launched
from ..engine import Engine
from ..errors import ArgumentError
from ..gathering import leaves, reassemble

PADDING = -100


class DistributedEngine(Engine):
    """The engine over the processes that `accelerate launch` or torchrun started.

    Precision and its scaler are those of one process. Subclasses leave both to their plugin.

    Args:
        args: As for `Engine`; the `ddp_*` arguments too.
        backend: torch.distributed's, where the arguments name none; by default the device's.
        **plugins: Plugins for the Accelerator, with its precision.
    """

    def __init__(self, args: Any, backend: str | None = None, **plugins: Any) -> None:
        # The last Trainer's plugins are not this one's.
        AcceleratorState._reset_state()
        self.accelerator: Any = accelerate.Accelerator(
            parallelism_config=args.parallelism_config,
            dataloader_config=loader_settings(args),
            kwargs_handlers=[
                InitProcessGroupKwargs(
                    backend=args.ddp_backend or backend, timeout=timedelta(seconds=args.ddp_timeout)
                ),
                DistributedDataParallelKwargs(**ddp_settings(args)),
            ],
            **{"cpu": args.use_cpu, "mixed_precision": "no", "dynamo_backend": "no", **plugins},
        )
        super().__init__(args)
        self.device: torch.device = self.accelerator.device
        self.world_size: int = self.accelerator.num_processes
        self.rank: int = self.accelerator.process_index

    def prepare_model(self, model: torch.nn.Module, training: bool = True) -> torch.nn.Module:
        inner = super().prepare_model(model)
        # Evaluation needs no averaging of gradients, and must not mark the model as one that has it.
        return self.accelerator.prepare_model(inner) if training else inner

    def unwrap(self, model: torch.nn.Module) -> torch.nn.Module:
        return self.accelerator.unwrap_model(model, keep_torch_compile=False)  # type: ignore[no-any-return]  # accelerate is untyped here

    @contextlib.contextmanager
    def accumulating(self, model: torch.nn.Module, is_last: bool) -> Iterator[None]:
        with super().accumulating(model, is_last):
            # An optimizer that steps inside backward averages each gradient itself, before it is used.
            waits = not is_last or self.in_backward is not None
            with self.accelerator.no_sync(model) if waits else contextlib.nullcontext():
                yield

    def gather(self, data: Any, own_rows: int) -> Any:
        if self.world_size == 1:
            return data
        if self.args.eval_use_gather_object:
            return self._gather_objects(data, own_rows)
        tensors = [tensor if tensor.dim() else tensor[None] for tensor in leaves(data)]
        return reassemble([self._rows_of_all(tensor.to(self.device), own_rows) for tensor in tensors], data)

    def _gather_objects(self, data: Any, own_rows: int) -> Any:
        """The same by pickled objects between the processes, for outputs that differ in more than their lengths."""
        everyone: list[Any] = [None] * self.world_size
        dist.all_gather_object(everyone, [tensor[:own_rows].cpu() for tensor in leaves(data)])
        joined = [torch.cat(parts) for parts in zip(*everyone, strict=True)]
        return reassemble(joined, data)

    def _rows_of_all(self, rows: torch.Tensor, own_rows: int) -> torch.Tensor:
        """Rows of every process, padded with -100 to the widest where later dimensions differ."""
        shape = torch.tensor([own_rows, *rows.shape[1:]], device=self.device)
        shapes = [torch.empty_like(shape) for _ in range(self.world_size)]
        dist.all_gather(shapes, shape)
        widest = torch.stack(shapes).max(dim=0).values.tolist()
        padded = rows.new_full(widest, PADDING)
        padded[tuple(slice(size) for size in (own_rows, *rows.shape[1:]))] = rows[:own_rows]
        everyone = [torch.empty_like(padded) for _ in range(self.world_size)]
        dist.all_gather(everyone, padded)
        return torch.cat([part[: int(sizes[0])] for part, sizes in zip(everyone, shapes, strict=True)])

    def gather_losses(self, losses: Any, rows: Any, targets: Any) -> tuple[Any, Any, Any]:
        everyone: list[Any] = [None] * self.world_size
        dist.all_gather_object(everyone, (losses, rows, targets))
        losses, rows, targets = (np.concatenate(parts) for parts in zip(*everyone, strict=True))
        own = rows > 0
        return losses[own], rows[own], targets[own]

    def sum_rows(self, rows: int) -> int:
        return int(self.sum(torch.tensor(rows)))

    def sum(self, value: Any) -> Any:
        total = torch.as_tensor(value, device=self.device).clone()
        dist.all_reduce(total)
        return total

    def mean(self, value: float) -> float:
        return float(self.sum(torch.tensor(value, dtype=torch.float64))) / self.world_size


def join(args: Any) -> None:
    """Join the launcher's other processes ahead of an engine, which takes the process group as it finds it."""
    timeout = timedelta(seconds=args.ddp_timeout)
    accelerate.PartialState(cpu=args.use_cpu or launched.on_cpu(), backend=args.ddp_backend, timeout=timeout)


def ddp_settings(args: Any) -> dict[str, Any]:
    """The `ddp_*` arguments under the names that torch's DDP has for them."""
    names = {
        "ddp_find_unused_parameters": "find_unused_parameters",
        "ddp_bucket_cap_mb": "bucket_cap_mb",
        "ddp_broadcast_buffers": "broadcast_buffers",
        "ddp_static_graph": "static_graph",
    }
    return {new: getattr(args, old) for old, new in names.items() if getattr(args, old) is not None}


def loader_settings(args: Any) -> Any:
    """`accelerator_config` as accelerate takes it.

    Raises:
        ArgumentError: it has a key that accelerate does not know.
    """
    given = dict(args.accelerator_config or {})
    given.pop("gradient_accumulation_kwargs", None)
    try:
        return accelerate.DataLoaderConfiguration(**given)
    except TypeError as error:
        raise ArgumentError("accelerator_config", sorted(given), str(error)) from error
