"""Several processes: DDP, FSDP and DeepSpeed by accelerate. The only file that imports it."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

import accelerate
import numpy as np
import torch
import torch.distributed as dist
from accelerate.utils import DistributedDataParallelKwargs, DistributedType, InitProcessGroupKwargs

from .engine import Engine, launched_with
from .errors import ArgumentError
from .gathering import leaves, reassemble

PADDING = -100


class DistributedEngine(Engine):
    """The engine over the processes that `accelerate launch` or torchrun started.

    Args:
        args: As for `Engine`; the `ddp_*`, `fsdp*` and `deepspeed` arguments too.

    Raises:
        ArgumentError: FSDP was asked for where accelerate would quietly run DDP instead.
    """

    def __init__(self, args: Any) -> None:
        self.accelerator = accelerate.Accelerator(
            cpu=args.use_cpu,
            mixed_precision="fp16" if args.fp16 else "bf16" if args.bf16 else "no",
            deepspeed_plugin=deepspeed_plugin(args),
            fsdp_plugin=fsdp_plugin(args),
            parallelism_config=args.parallelism_config,
            dataloader_config=loader_settings(args),
            kwargs_handlers=[
                InitProcessGroupKwargs(backend=args.ddp_backend, timeout=timedelta(seconds=args.ddp_timeout)),
                DistributedDataParallelKwargs(**ddp_settings(args)),
            ],
        )
        super().__init__(args)
        self.device = self.accelerator.device
        self.scaler = None
        self.world_size = self.accelerator.num_processes
        self.rank = self.accelerator.process_index
        self.kind = self.accelerator.distributed_type
        asked = args.fsdp or launched_with("FSDP")
        if asked and self.kind != DistributedType.FSDP:
            fix = f"accelerate would run {self.kind} here: FSDP needs a GPU a process, or leave it out"
            raise ArgumentError("fsdp", asked, fix)

    def prepare_model(self, model: torch.nn.Module, training: bool = True) -> torch.nn.Module:
        inner = super().prepare_model(model)
        return self.accelerator.prepare_model(inner, evaluation_mode=not training)  # type: ignore[no-any-return]  # accelerate is untyped here

    def prepare_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        super().prepare_optimizer(optimizer)
        if self.kind in (DistributedType.DEEPSPEED, DistributedType.FSDP) or self.accelerator.scaler is not None:
            return self.accelerator.prepare_optimizer(optimizer)  # type: ignore[no-any-return]  # accelerate is untyped here
        return optimizer

    def unwrap(self, model: torch.nn.Module) -> torch.nn.Module:
        return self.accelerator.unwrap_model(model)  # type: ignore[no-any-return]  # accelerate is untyped here

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        # accelerate puts the precision into the wrapped model's forward.
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def accumulating(self, model: torch.nn.Module, is_last: bool) -> Any:
        with super().accumulating(model, is_last):
            self.accelerator.gradient_state._set_sync_gradients(is_last)
            # An optimizer that steps inside backward averages each gradient itself, before it is used.
            waits = (not is_last or self.in_backward is not None) and self.kind != DistributedType.DEEPSPEED
            with self.accelerator.no_sync(model) if waits else contextlib.nullcontext():
                yield

    def backward(self, loss: torch.Tensor) -> None:
        self.accelerator.backward(loss)

    def clip(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, max_norm: float) -> Any:
        if self.in_backward is not None:
            return self.in_backward.last_grad_norm()
        return self.accelerator.clip_grad_norm_(model.parameters(), max_norm if max_norm > 0 else float("inf"))

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()
        self.step_was_skipped = self.accelerator.optimizer_step_was_skipped

    def zero_grad(self, model: torch.nn.Module) -> None:
        model.zero_grad()

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


def deepspeed_plugin(args: Any) -> Any:
    """DeepSpeed as `args.deepspeed` says: a path or a dict."""
    if not args.deepspeed:
        return None
    return accelerate.DeepSpeedPlugin(hf_ds_config=args.deepspeed)


def fsdp_plugin(args: Any) -> Any:
    """FSDP as `args.fsdp` and `args.fsdp_config` say."""
    if not args.fsdp:
        return None
    settings = dict(args.fsdp_config or {})
    return accelerate.FullyShardedDataParallelPlugin(**settings)
