"""torch's fused AdamW, called directly: the same numbers and state with less work around the kernel."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

Lists = tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]
# The undecorated method: torch's decorator imports torch._dynamo.
_add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)


class FusedAdamW(torch.optim.AdamW):
    """Decoupled weight decay (arXiv 1711.05101) by torch's fused kernel.

    State, state dict and results are those of `torch.optim.AdamW(fused=True)`, bit for bit. What is left out is
    the set-up around it: torch imports its compiler when an optimizer is built, which takes longer than the
    first steps of a small model, and sorts all tensors by device and type at each step.

    Args:
        params: Parameters or groups of them.
        lr: Learning rate.
        betas: Decay of the two moments.
        eps: Added to the root of the second moment.
        weight_decay: Decay of the weights, times the learning rate.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        self._lists: list[list[Lists]] = []
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)
        # The gradients reach this class unscaled: torch's protocol for scaling inside the kernel is left out.
        self._step_supports_amp_scaling = False

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        _add_param_group(self, param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._lists = []
        torch.optim.Optimizer.load_state_dict(self, state_dict)

    def _tensors(self, group: dict[str, Any]) -> list[Lists]:
        """Parameters of a group with their state, one set of lists for each device and type."""
        kinds: dict[Any, Lists] = defaultdict(lambda: ([], [], [], []))
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            lists = kinds[parameter.device, parameter.dtype]
            for items, item in zip(
                lists, (parameter, state["exp_avg"], state["exp_avg_sq"], state["step"]), strict=True
            ):
                items.append(item)
        return list(kinds.values())

    def _current_lists(self) -> list[list[Lists]]:
        with_gradient = sum(p.grad is not None for group in self.param_groups for p in group["params"])
        if sum(len(lists[0]) for group in self._lists for lists in group) != with_gradient or any(
            parameter.grad is None for group in self._lists for lists in group for parameter in lists[0]
        ):
            self._lists = [self._tensors(group) for group in self.param_groups]
        return self._lists

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]  # as torch's
        """One update of every parameter that has a gradient."""
        for hook in self._optimizer_step_pre_hooks.values():
            hook(self, (), {})
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, kinds in zip(self.param_groups, self._current_lists(), strict=True):
            beta1, beta2 = group["betas"]
            for parameters, exp_avgs, exp_avg_sqs, steps in kinds:
                torch._foreach_add_(steps, 1)
                torch._fused_adamw_(
                    parameters,
                    [parameter.grad for parameter in parameters],  # type: ignore[misc]  # only those with one
                    exp_avgs,
                    exp_avg_sqs,
                    [],
                    steps,
                    amsgrad=False,
                    lr=group["lr"],
                    beta1=beta1,
                    beta2=beta2,
                    weight_decay=group["weight_decay"],
                    eps=group["eps"],
                    maximize=False,
                )
        for hook in self._optimizer_step_post_hooks.values():
            hook(self, (), {})
        return loss

    step.hooked = True  # type: ignore[attr-defined]  # tells torch not to wrap it again
