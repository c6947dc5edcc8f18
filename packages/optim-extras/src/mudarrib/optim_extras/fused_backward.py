"""Updates inside the backward pass: each gradient is used and freed as soon as it is there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from weakref import ref

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from .checks import check_dense
from .errors import OptionError
from .exact_state import PerParameter
from .norms import euclidean


class FusedBackward(PerParameter):
    """Makes an optimizer that updates one parameter at a time do so while gradients are computed.

    Mixed in before such an optimizer. The loop says when the last micro-batch of a step begins:

        optimizer.begin_micro_batch(is_last=True)
        loss.backward()          # parameters are updated, gradients freed
        optimizer.step()         # ends the step

    Before the last micro-batch gradients accumulate as usual. Without `begin_micro_batch` nothing is updated, so
    that a backward pass outside of training does no harm. With several processes each gradient is averaged over
    them here, so run the backward pass without DDP's own averaging (`no_sync`).

    The norm over all parameters is known only when all gradients have been there. It can limit the update in two
    passes: one in `measuring()`, whose gradients are thrown away, then the one that updates.
    """

    def _prepare(self) -> None:
        super()._prepare()
        self._is_last = False
        self._measures = False
        self._squares: list[torch.Tensor] = []
        self._norm: torch.Tensor | None = None
        self._scale: torch.Tensor | None = None
        self._measured: torch.Tensor | None = None
        self._scaler: torch.amp.GradScaler | None = None
        self._witness: torch.Tensor | None = None
        self._hooks: dict[torch.Tensor, Any] | None = {}

    def _take(self, group: dict[str, Any]) -> None:
        super()._take(group)
        self._attach()

    def _attach(self) -> None:
        """Hook what is trained and has no hook yet: the parameters of a new group, and those that were frozen."""
        if self._hooks is None:
            return
        for number, group in enumerate(self.param_groups):
            for parameter in group["params"]:
                if parameter.requires_grad and parameter not in self._hooks:
                    self._hooks[parameter] = parameter.register_post_accumulate_grad_hook(self._hook(number))

    def _hook(self, number: int) -> Any:
        # A hook must not keep alive an optimizer that nobody else holds any more.
        me = ref(self)

        def use(parameter: torch.Tensor) -> None:
            optimizer = me()
            if optimizer is not None:
                optimizer._use(parameter, number)

        return use

    @torch.no_grad()
    def _use(self, parameter: torch.Tensor, number: int) -> None:
        gradient = parameter.grad
        if gradient is None or not (self._is_last or self._measures):
            return
        check_dense(gradient)
        average(gradient)
        overflowed = None
        if self._scaler is not None:
            gradient.mul_(1.0 / self._scaler.get_scale())
            overflowed = not bool(torch.isfinite(self._square(gradient)))
        self._squares.append(self._square(gradient))
        if self._is_last and not overflowed:
            if self._scale is not None:
                gradient = gradient * self._scale
            self.apply_gradient(parameter, gradient, self.param_groups[number])
        parameter.grad = None
        if self._is_last and overflowed is not None:
            self._bear_witness(parameter, overflowed)

    @staticmethod
    def _square(gradient: torch.Tensor) -> torch.Tensor:
        norm = euclidean(gradient)
        return (norm.full_tensor() if isinstance(norm, DTensor) else norm).square()

    def _bear_witness(self, parameter: torch.Tensor, overflowed: bool) -> None:
        """Leave one gradient, the smallest, for the scaler to see whether any overflowed."""
        old = self._witness
        seen = overflowed or (old is not None and old.grad is not None and not bool(torch.isfinite(old.grad).all()))
        if old is None or parameter.numel() < old.numel():
            if old is not None:
                old.grad = None
            self._witness = old = parameter
        old.grad = torch.full_like(old, float("inf") if seen else 0.0)

    def use_scaler(self, scaler: torch.amp.GradScaler) -> None:
        """Take gradients of a scaled loss: unscale each before its use, leave out what overflowed.

        The loop goes on calling `scaler.step(optimizer)` and `scaler.update()`. Where a gradient overflows, that
        parameter is not updated in this step; others may have been, since their turn came earlier.

        Args:
            scaler: The one that scales the loss.
        """
        self._scaler = scaler

    def begin_micro_batch(self, is_last: bool, max_grad_norm: float | None = None) -> None:
        """Say that a micro-batch begins, and whether it is the last of its step.

        Args:
            is_last: Update while its backward pass runs.
            max_grad_norm: Limit of the norm over all parameters. It acts where that norm has been measured by a
                first pass in `measuring()`; otherwise the norm is not known in time and nothing is limited.
        """
        self._attach()
        self._is_last = is_last
        self._squares.clear()
        self._scale = None
        if self._witness is not None:
            self._witness.grad = None
            self._witness = None
        if max_grad_norm is not None and self._measured is not None:
            self._scale = torch.clamp(max_grad_norm / (self._measured + 1e-6), max=1.0)

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Around a first backward pass, whose gradients only give the norm."""
        self._measures, self._is_last = True, False
        self._squares.clear()
        try:
            yield
            self._measured = self._total()
        finally:
            self._measures = False

    def _total(self) -> torch.Tensor | None:
        if not self._squares:
            return None
        device = self._squares[0].device
        return torch.stack([square.to(device) for square in self._squares]).sum().sqrt()

    def last_grad_norm(self) -> torch.Tensor | None:
        """The norm over all parameters of the gradients that were used last; None before the first step."""
        total = self._total()
        if total is not None:
            self._norm = total
        return self._norm

    def step(self, closure: Any = None) -> Any:
        """End the step; the parameters have been updated.

        Args:
            closure: Computes the loss and its gradients, as the last micro-batch of the step; returns the loss.

        Raises:
            OptionError: there are gradients that were not used, since the last micro-batch was not announced.
        """
        loss = None
        if closure is None and not self._is_last:
            self._refuse_unused()
        if closure is not None:
            if not self._is_last:
                self.begin_micro_batch(is_last=True)
            with torch.enable_grad():
                loss = closure()
        self.last_grad_norm()
        self._is_last = False
        self._measured = None
        return loss

    def _refuse_unused(self) -> None:
        unused = sum(parameter.grad is not None for parameter in self._hooks or ())
        if unused:
            raise OptionError(
                "step()", f"with {unused} gradients that no update has used",
                "call begin_micro_batch(is_last=True) before the step's last backward pass; or take the optimizer that "
                "updates in step(): the builder's option {'clip': 'global'}, or the class without Fused or Layerwise",
            )  # fmt: skip

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        self._witness = None

    def detach(self) -> None:
        """Take the hooks off the parameters, for good."""
        for hook in (self._hooks or {}).values():
            hook.remove()
        self._hooks = None


def average(gradient: torch.Tensor) -> None:
    """The mean over the processes; a sharded gradient is one already."""
    if isinstance(gradient, DTensor) or not (dist.is_available() and dist.is_initialized()):
        return
    if dist.get_world_size() > 1:
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
