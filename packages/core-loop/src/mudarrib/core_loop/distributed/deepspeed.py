"""DeepSpeed's ZeRO stages (arXiv 1910.02054) through accelerate's plugin."""

from __future__ import annotations

import contextlib
import os
import types
from collections.abc import Iterator
from typing import Any

import accelerate
import torch
from accelerate.utils.deepspeed import DummyOptim, DummyScheduler

from ..engine import Build, StepsInBackward, precision_of
from ..errors import ArgumentError
from ..logs import Logger, get_logger
from .deepspeed_state import DeepSpeedState, put
from .engine import DistributedEngine
from .whole_matrices import check_for_deepspeed

logger: Logger = get_logger(__name__)


class DeepSpeedEngine(DistributedEngine):
    """The engine of a model that DeepSpeed trains.

    An optimizer or scheduler in DeepSpeed's own settings is used instead of the arguments'; "auto" takes theirs.

    Args:
        args: As for `DistributedEngine`; `deepspeed` too. Without it the launcher's plugin is used.

    Raises:
        ArgumentError: deepspeed is not installed, or its settings contradict the arguments.
    """

    def __init__(self, args: Any) -> None:
        on_cpu = args.device.type == "cpu"
        if on_cpu:
            os.environ.setdefault("DS_ACCELERATOR", "cpu")
        try:
            plugin = accelerate.DeepSpeedPlugin(hf_ds_config=args.deepspeed) if args.deepspeed else None
            # accelerate leaves DeepSpeed out where it is told to use the CPU; DeepSpeed itself is told above.
            settings = {"cpu": False, "deepspeed_plugin": plugin, "mixed_precision": precision_of(args)}
            super().__init__(args, backend="gloo" if on_cpu else None, **settings)
        except ImportError as error:
            raise ArgumentError("deepspeed", args.deepspeed, "pip install deepspeed, or leave it out") from error
        self.scaler: torch.amp.GradScaler | None = None
        self.plugin: Any = self.accelerator.state.deepspeed_plugin
        if self.stage == 0 and self.precision != "no":
            fix = "a checkpoint would not hold its float32 weights: set stage 1, which trains alike in less memory"
            raise ArgumentError("deepspeed", f"stage 0 with {self.precision}", fix)
        self.wrapped: Any = None
        self.inner: torch.nn.Module | None = None
        self.groups: list[list[torch.nn.Parameter]] = []

    @property
    def updates_in_backward(self) -> bool:
        return True

    @property
    def stage(self) -> int:
        return int(self.plugin.zero_stage)

    def place(self, model: torch.nn.Module) -> None:
        """Nothing: DeepSpeed places what it splits."""

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        # DeepSpeed casts the weights themselves.
        return contextlib.nullcontext()

    def prepare_model(self, model: torch.nn.Module, training: bool = True) -> torch.nn.Module:
        if self.wrapped is not None and model is self.inner:
            return self.wrapped  # type: ignore[no-any-return]  # deepspeed is untyped
        # Split only when training begins; before that, each process evaluates with the whole model.
        return model.to(self.device)

    def prepare(
        self, model: torch.nn.Module, build: Build, steps: int
    ) -> tuple[torch.nn.Module, torch.optim.Optimizer, Any]:
        self.accelerator.deepspeed_engine_wrapped = None
        optimizer, scheduler = build(model)
        config = self._settings(model, steps)
        if "optimizer" not in config or isinstance(optimizer, StepsInBackward):
            check_for_deepspeed(optimizer, self.stage)
        self.groups = [list(group["params"]) for group in optimizer.param_groups]
        parts: list[Any] = [model, DummyOptim(params=plain(optimizer)) if "optimizer" in config else optimizer]
        if "scheduler" in config:
            parts.append(DummyScheduler(parts[1]))
        wrapped, stepper, *schedulers = self.accelerator.prepare(*parts)
        self.inner, self.wrapped = model, wrapped
        splitter = stepper.optimizer
        if schedulers:
            scheduler = schedulers[0]
        elif "optimizer" in config:
            follow(scheduler, optimizer, inner_of(splitter))
        return wrapped, splitter, scheduler

    def _settings(self, model: torch.nn.Module, steps: int) -> dict[str, Any]:
        """DeepSpeed's settings with what the arguments say for "auto".

        Raises:
            ArgumentError: both say different things.
        """
        from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

        settings = HfTrainerDeepSpeedConfig(self.plugin.hf_ds_config.config)
        said = as_deepspeed_reads(self.args, self.precision)
        clipping = settings.config.get("gradient_clipping", "auto")
        if clipping not in ("auto", said.max_grad_norm) and not self.args.deepspeed:
            logger.info("Gradients are clipped to %s, as launched, not to max_grad_norm.", clipping)
            said.max_grad_norm = clipping
        settings.trainer_config_process(said)
        try:
            settings.trainer_config_finalize(said, model, steps)
        except ValueError as error:
            raise ArgumentError("deepspeed", self.args.deepspeed or "as launched", str(error)) from error
        self.plugin.hf_ds_config, self.plugin.deepspeed_config = settings, settings.config
        config: dict[str, Any] = settings.config
        return config

    @contextlib.contextmanager
    def accumulating(self, model: torch.nn.Module, is_last: bool) -> Iterator[None]:
        self.accelerator.gradient_state._set_sync_gradients(is_last)
        yield

    def backward(self, loss: torch.Tensor) -> None:
        # The loss is its share of the step's mean already.
        self.accelerator.backward(loss, scale_wrt_gas=False)

    def clip(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, max_norm: float) -> Any:
        return self.wrapped.get_global_grad_norm()

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        self.step_was_skipped: bool = bool(getattr(self.wrapped.optimizer, "overflow", False))

    def zero_grad(self, model: torch.nn.Module) -> None:
        """Nothing: DeepSpeed clears gradients as it uses them."""

    def unwrap(self, model: torch.nn.Module) -> torch.nn.Module:
        return self.inner if self.inner is not None and model is self.wrapped else model

    def whole_state(self, model: torch.nn.Module) -> dict[str, Any] | None:
        if self.stage < 3 or self.wrapped is None:
            return None
        from deepspeed.runtime.zero import GatheredParameters

        inner = self.unwrap(model)
        state = {name: buffer.cpu() for name, buffer in inner.state_dict().items() if buffer.numel()}
        gathered: dict[int, torch.Tensor] = {}
        for name, parameter in inner.named_parameters(remove_duplicate=False):
            if id(parameter) not in gathered:
                with GatheredParameters([parameter]):
                    gathered[id(parameter)] = parameter.detach().cpu().clone() if self.rank == 0 else torch.empty(0)
            state[name] = gathered[id(parameter)]
        return state if self.rank == 0 else {}

    def load_state(self, model: torch.nn.Module, state: dict[str, Any]) -> Any:
        inner = self.unwrap(model)
        if self.wrapped is None:
            return super().load_state(inner, state)
        if self.stage < 3:
            result = super().load_state(inner, state)
            if hasattr(self.wrapped.optimizer, "refresh_fp32_params"):
                self.wrapped.optimizer.refresh_fp32_params()
            return result
        from deepspeed.runtime.zero import GatheredParameters

        named = dict(inner.named_parameters(remove_duplicate=False))
        for name, parameter in named.items():
            if name in state:
                with GatheredParameters([parameter], modifier_rank=0):
                    parameter.data.copy_(state[name])
                put(parameter, state[name])
        missing = [name for name in named if name not in state]
        return types.SimpleNamespace(missing_keys=missing, unexpected_keys=[])

    def optimizer_parts(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        # Stage 0 without half precision leaves the optimizer as it is.
        if inner_of(optimizer) is optimizer:
            return super().optimizer_parts(model, optimizer)
        return {"optimizer": DeepSpeedState(optimizer, self.groups)}


def inner_of(optimizer: Any) -> torch.optim.Optimizer:
    """The optimizer that updates, inside what DeepSpeed has wrapped around it, if anything."""
    inner: torch.optim.Optimizer = getattr(optimizer, "optimizer", optimizer)
    return inner


def as_deepspeed_reads(args: Any, precision: str) -> Any:
    """The arguments under the names that transformers' reader of DeepSpeed settings asks for."""
    names = ("world_size", "per_device_train_batch_size", "gradient_accumulation_steps", "max_grad_norm",
             "learning_rate", "adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay", "save_on_each_node",
             "get_warmup_steps")  # fmt: skip
    said = {name: getattr(args, name) for name in names}
    half = {"fp16": precision == "fp16", "bf16": precision == "bf16"}
    return types.SimpleNamespace(**said, **half, fp16_full_eval=False, bf16_full_eval=False)


def plain(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Parameter groups with their weight decay, for an optimizer that DeepSpeed makes."""
    return [{"params": group["params"], "weight_decay": group["weight_decay"]} for group in optimizer.param_groups]


def follow(scheduler: Any, old: torch.optim.Optimizer, new: torch.optim.Optimizer) -> None:
    """Let a scheduler set the rates of another optimizer, made of the same groups."""
    for before, after in zip(old.param_groups, new.param_groups, strict=True):
        after.update({name: before[name] for name in ("lr", "initial_lr") if name in before})
    scheduler.optimizer = new
