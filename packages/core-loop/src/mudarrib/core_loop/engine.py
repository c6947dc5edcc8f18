"""What touches the device: placement, autocast, backward, clipping, the optimizer's step. One process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

import torch

from . import launched
from .errors import ArgumentError
from .gathering import nested_map

Build = Callable[[torch.nn.Module], tuple[torch.optim.Optimizer, Any]]


@runtime_checkable
class StepsInBackward(Protocol):
    """An optimizer that updates its parameters while gradients are computed (LOMO, layerwise variants)."""

    def begin_micro_batch(self, is_last: bool, max_grad_norm: float | None = None) -> None: ...

    def last_grad_norm(self) -> torch.Tensor | float | None: ...


class Engine:
    """Runs a model on one device; those of `distributed` do the same over several processes.

    Args:
        args: Gives the device and the precision (`fp16`, `bf16`; where neither is given, as launched).

    Attributes:
        dtype: The half precision of forward passes, or None.
        scaler: Scales the loss of float16.
        step_was_skipped: Whether the last step was left out since scaled gradients overflowed.
        in_backward: The optimizer, if it updates while gradients are computed.
        updates_in_backward: Whether weights change before `step` is called.
        saves_shards: Whether checkpoints hold each process's shards instead of a whole model.
    """

    world_size = 1
    rank = 0
    saves_shards = False

    def __init__(self, args: Any) -> None:
        self.args = args
        self.device: torch.device = args.device
        self.precision: str = precision_of(args)
        self.dtype: torch.dtype | None = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(self.precision)
        # Half precision has a narrow range of gradients, bfloat16 has that of float32.
        self.scaler: torch.amp.GradScaler | None = (
            torch.amp.GradScaler(self.device.type) if self.precision == "fp16" else None
        )
        self.step_was_skipped: bool = False
        self.parameters: list[torch.nn.Parameter] = []
        self.in_backward: StepsInBackward | None = None

    def prepare_model(self, model: torch.nn.Module, training: bool = True) -> torch.nn.Module:
        """Wrap the model for training; here, compile it where that is asked for."""
        backend = launched.dynamo_backend()
        if self.args.torch_compile:
            backend = self.args.torch_compile_backend or "inductor"
        if backend is None:
            return model
        return torch.compile(model, backend=backend, mode=self.args.torch_compile_mode)  # type: ignore[return-value]  # a compiled module is one

    def prepare(
        self, model: torch.nn.Module, build: Build, steps: int
    ) -> tuple[torch.nn.Module, torch.optim.Optimizer, Any]:
        """The wrapped model with its optimizer and scheduler, which `build` makes for it; for so many steps."""
        wrapped = self.prepare_model(model)
        optimizer, scheduler = build(wrapped)
        return wrapped, self.prepare_optimizer(optimizer), scheduler

    def prepare_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Make the optimizer ready for the wrapped model."""
        self.in_backward = optimizer if isinstance(optimizer, StepsInBackward) else None
        if self.in_backward is not None and self.scaler is not None:
            use_scaler = getattr(optimizer, "use_scaler", None)
            if use_scaler is None:
                raise ArgumentError("fp16", True, f"{type(optimizer).__name__} steps inside backward: use bf16 with it")
            use_scaler(self.scaler)
        return optimizer

    def unwrap(self, model: torch.nn.Module) -> torch.nn.Module:
        """The user's model inside the wrapped one."""
        return getattr(model, "_orig_mod", model)

    @property
    def updates_in_backward(self) -> bool:
        return self.in_backward is not None

    def end_evaluation(self, model: torch.nn.Module) -> None:
        """Called after forward passes that no backward pass followed."""

    def place(self, model: torch.nn.Module) -> None:
        """Move a model to the device."""
        model.to(self.device)

    def whole_state(self, model: torch.nn.Module) -> dict[str, Any] | None:
        """The whole state dict of a model that is split over processes; None where the model has it itself.

        Called by all processes; the first gets the state, the others an empty one.
        """
        return None

    def load_state(self, model: torch.nn.Module, state: dict[str, Any]) -> Any:
        """Put a whole state dict into a model, wrapped or not; returns the missing and the unexpected names."""
        return model.load_state_dict(state, strict=False)

    def optimizer_parts(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """What of the optimizer goes into a checkpoint, by name; states that are the same in any layout."""
        return {"optimizer": optimizer}

    def to_device(self, data: Any) -> Any:
        """The nested batch with its tensors on the device."""
        if self.device.type == "cpu":
            return data
        return nested_map(lambda tensor: tensor.to(self.device, non_blocking=True), data)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The precision of forward passes."""
        if self.dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def accumulating(self, model: torch.nn.Module, is_last: bool) -> contextlib.AbstractContextManager[Any]:
        """Around the forward and backward of a micro-batch; gradients are complete after the last one."""
        if self.in_backward is not None:
            self.in_backward.begin_micro_batch(is_last, self.args.max_grad_norm or None)
        return contextlib.nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so

    def release_cache(self, step: int) -> None:
        """Give cached memory back every `torch_empty_cache_steps` steps."""
        every = self.args.torch_empty_cache_steps
        if every is not None and step % every == 0 and self.device.type in ("cuda", "xpu", "mps"):
            getattr(torch, self.device.type).empty_cache()

    def watch(self, model: torch.nn.Module) -> None:
        """Note the parameters whose gradients are clipped and cleared; cheap, done once an epoch."""
        self.parameters = list(model.parameters())

    def clip(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, max_norm: float) -> Any:
        """Clip the gradients to a global norm (0: not at all); returns the norm before, on the device."""
        if self.in_backward is not None:
            return self.in_backward.last_grad_norm()
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        return clip_gradients(gradients, max_norm)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Step the optimizer; `step_was_skipped` tells whether scaled gradients overflowed."""
        if self.scaler is None:
            optimizer.step()
            return
        before = self.scaler.get_scale()
        self.scaler.step(optimizer)
        self.scaler.update()
        self.step_was_skipped = self.scaler.get_scale() < before

    def zero_grad(self, model: torch.nn.Module) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def gather(self, data: Any, own_rows: int) -> Any:
        """The nested rows of all processes, in the order of ranks; of this one the first `own_rows`."""
        return data

    def gather_losses(self, losses: Any, rows: Any, targets: Any) -> tuple[Any, Any, Any]:
        """Arrays of all processes' batches, one after the other."""
        return losses, rows, targets

    def sum_rows(self, rows: int) -> int:
        """Rows over all processes."""
        return rows

    def mean(self, value: float) -> float:
        """Mean of a number over the processes."""
        return value

    def sum(self, value: Any) -> Any:
        """Sum of a count over the processes."""
        return value


def precision_of(args: Any) -> str:
    """The precision of forward passes: "no", "fp16" or "bf16".

    Raises:
        ArgumentError: float16 on the CPU, where its gradients would underflow unseen.
    """
    precision = "fp16" if args.fp16 else "bf16" if args.bf16 else launched.precision()
    if precision == "fp16" and args.device.type == "cpu":
        raise ArgumentError("fp16", True, "use bf16 on the CPU: float16 needs an accelerator")
    return precision


def clip_gradients(gradients: Iterable[torch.Tensor], max_norm: float) -> torch.Tensor:
    """The global norm of the gradients, which are scaled down to `max_norm` in place where it is above 0.

    The same operations as `torch.nn.utils.clip_grad_norm_` without its grouping where all are of one kind.
    """
    gradients = list(gradients)
    if not gradients:
        return torch.tensor(0.0)
    first = gradients[0]
    kinds = {(gradient.device, gradient.dtype, type(gradient)) for gradient in gradients}
    if kinds != {(first.device, first.dtype, torch.Tensor)}:
        norm = torch.nn.utils.get_total_norm(gradients)
        if max_norm > 0:
            for gradient in gradients:
                gradient.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0).to(gradient.device))
        return norm
    norms: tuple[torch.Tensor, ...] = torch._foreach_norm(gradients, 2.0)
    total: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms))
    if max_norm > 0:
        torch._foreach_mul_(gradients, torch.clamp(max_norm / (total + 1e-6), max=1.0))
    return total
