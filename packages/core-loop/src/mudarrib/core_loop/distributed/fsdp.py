"""Fully sharded data parallel: each process keeps a share of weights, gradients and optimizer state.

Wrapping is accelerate's, with its plugin, on any device. Version 2 is torch's `fully_shard`, version 1
`FullyShardedDataParallel` (arXiv 2304.11277).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_apply_ac, fsdp2_prepare_model
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, StateDictType
from torch.distributed.tensor import DTensor

from .. import launched
from ..engine import precision_of
from ..errors import ArgumentError
from ..logs import Logger, get_logger
from .engine import DistributedEngine
from .fsdp_settings import plugin_settings
from .whole_matrices import check_for_fsdp
from .whole_optimizer import WholeOptimizer, whole_state_options

logger: Logger = get_logger(__name__)
# Names that a wrapper gives to what it wraps, which a state dict leaves out.
WRAPPERS = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module")


class FsdpEngine(DistributedEngine):
    """The engine of a model that is sharded over its processes.

    Args:
        args: As for `DistributedEngine`; `fsdp` and `fsdp_config` too.

    Raises:
        ArgumentError: A setting is wrong, the optimizer sees no matrices, or there is one process only.
    """

    def __init__(self, args: Any) -> None:
        self.plugin: Any = plugin_of(args)
        # Named ones are refused before they are built, which would say something about shapes.
        check_for_fsdp(str(args.optim), self.plugin.fsdp_version)
        super().__init__(args, fsdp_plugin=self.plugin, mixed_precision=precision_of(args))
        self.scaler: torch.amp.GradScaler | None = None
        self.saves_shards: bool = self.plugin.state_dict_type == StateDictType.SHARDED_STATE_DICT
        self.wrapped: tuple[torch.nn.Module, torch.nn.Module] | None = None
        if self.world_size == 1:
            raise ArgumentError("fsdp", args.fsdp, "launch at least 2 processes, or leave it out: nothing to shard")
        if self.device.type == "cpu":
            self._shard_on_cpu()
        elif self.accelerator.distributed_type != DistributedType.FSDP:
            raise ArgumentError("fsdp", args.fsdp, f"accelerate would run {self.accelerator.distributed_type} here")

    def _shard_on_cpu(self) -> None:
        """Keep accelerate from running DDP instead, as it does on the CPU without a word."""
        state = self.accelerator.state
        state.fsdp_plugin, state.distributed_type = self.plugin, DistributedType.FSDP
        if self.precision != "no":
            self.plugin.set_mixed_precision(self.precision)
        # Version 1 compares devices, and those of the parameters have no number.
        self.device: torch.device = torch.device("cpu")
        state.device = self.device

    @property
    def is_version_2(self) -> bool:
        return bool(self.plugin.fsdp_version == 2)

    def place(self, model: torch.nn.Module) -> None:
        """Nothing: the shards are moved, not the model."""

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        # The plugin's precision policy casts the weights themselves; accelerate does the rest in version 1.
        return contextlib.nullcontext()

    def prepare_model(self, model: torch.nn.Module, training: bool = True) -> torch.nn.Module:
        if self.wrapped is not None and self.wrapped[0] is model:
            return self.wrapped[1]
        try:
            wrapped = self._shard(model)
        except (ValueError, KeyError) as error:
            raise ArgumentError("fsdp_config", self.plugin.transformer_cls_names_to_wrap, str(error)) from error
        self.wrapped = (model, wrapped)
        return wrapped

    def _shard(self, model: torch.nn.Module) -> torch.nn.Module:
        if not self.is_version_2:
            wrapped: torch.nn.Module = self.accelerator.prepare_model(model)
            if hasattr(model, "peft_config"):
                name_as_saved(model)
            return wrapped
        self.plugin.set_auto_wrap_policy(model)
        if self.plugin.activation_checkpointing:
            model = fsdp2_apply_ac(self.accelerator, model)
        backend = launched.dynamo_backend() or (self.args.torch_compile_backend or "inductor")
        if self.args.torch_compile or launched.dynamo_backend():
            model.compile(backend=backend, mode=self.args.torch_compile_mode)
        self.accelerator._models.append(model)
        sharded: torch.nn.Module = fsdp2_prepare_model(self.accelerator, model)
        return sharded

    def end_evaluation(self, model: torch.nn.Module) -> None:
        # A unit that stays whole after its forward pass waits for a backward pass to be sharded again.
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def prepare_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        check_for_fsdp(optimizer, self.plugin.fsdp_version)
        optimizer = super().prepare_optimizer(optimizer)
        if self.accelerator.scaler is not None:
            return self.accelerator.prepare_optimizer(optimizer)  # type: ignore[no-any-return]  # accelerate is untyped here
        return optimizer

    @contextlib.contextmanager
    def accumulating(self, model: torch.nn.Module, is_last: bool) -> Iterator[None]:
        self.accelerator.gradient_state._set_sync_gradients(is_last)
        if self.in_backward is not None:
            # Its hooks run on averaged shards, in every micro-batch.
            self.in_backward.begin_micro_batch(is_last, self.args.max_grad_norm or None)
            yield
            return
        with super().accumulating(model, is_last):
            yield

    def backward(self, loss: torch.Tensor) -> None:
        self.accelerator.backward(loss)

    def clip(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, max_norm: float) -> Any:
        if self.in_backward is not None:
            return whole(self.in_backward.last_grad_norm())
        if self.accelerator.scaler is not None:
            self.accelerator.unscale_gradients()
        limit = max_norm if max_norm > 0 else float("inf")
        if isinstance(model, FullyShardedDataParallel):
            return model.clip_grad_norm_(limit)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = whole(torch.nn.utils.get_total_norm(gradients))
        if max_norm > 0 and norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, max_norm, norm)
        return norm

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()
        self.step_was_skipped: bool = self.accelerator.optimizer_step_was_skipped

    def unwrap(self, model: torch.nn.Module) -> torch.nn.Module:
        if self.wrapped is not None and model in self.wrapped:
            return self.wrapped[0]
        return super().unwrap(model)

    def _sharded(self, model: torch.nn.Module) -> torch.nn.Module:
        return self.wrapped[1] if self.wrapped is not None and model in self.wrapped else model

    def whole_state(self, model: torch.nn.Module) -> dict[str, Any] | None:
        sharded = self._sharded(model)
        if self.wrapped is None or sharded is not self.wrapped[1]:
            return None
        state = get_model_state_dict(sharded, options=whole_state_options(self.device))
        for name, first in tied_names(self.unwrap(model)).items():
            if name in state and first in state:
                state[name] = state[first]
        return state

    def load_state(self, model: torch.nn.Module, state: dict[str, Any]) -> Any:
        if self.wrapped is None or model not in self.wrapped:
            return super().load_state(model, state)
        options = StateDictOptions(full_state_dict=True, strict=False)
        return set_model_state_dict(self._sharded(model), state, options=options)

    def optimizer_parts(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {"optimizer": WholeOptimizer(self._sharded(model), optimizer, self.device)}


def name_as_saved(model: torch.nn.Module) -> None:
    """Let modules be found under the names in the state dict, without those of version 1's wrappers.

    peft takes an adapter's weights by its modules' names, and saves none whose module it does not find.
    """
    named_modules = model.named_modules

    def without_wrappers(*given: Any, **more: Any) -> Iterator[tuple[str, torch.nn.Module]]:
        for name, module in named_modules(*given, **more):
            yield ".".join(part for part in name.split(".") if part not in WRAPPERS), module

    model.named_modules = without_wrappers  # type: ignore[method-assign]  # of this one object


def tied_names(model: torch.nn.Module) -> dict[str, str]:
    """Names of parameters that have an earlier name, too, with that name."""
    first: dict[int, str] = {}
    named = model.named_parameters(remove_duplicate=False)
    return {name: earlier for name, one in named if (earlier := first.setdefault(id(one), name)) != name}


def whole(value: Any) -> Any:
    """A number that is spread over processes, as each process may use it."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def plugin_of(args: Any) -> FullyShardedDataParallelPlugin:
    """accelerate's plugin, from the arguments or, where they say nothing, from the launcher's environment.

    Raises:
        ArgumentError: a setting that it does not know or take.
    """
    settings = plugin_settings(args) if args.fsdp else {}
    if args.device.type == "cpu":
        # Rank 0's weights are broadcast to a GPU, for which version 1 looks; processes on a CPU build the same.
        settings["cpu_ram_efficient_loading"] = False
        if settings.get("fsdp_version", int(os.environ.get("FSDP_VERSION", "1"))) == 1:
            settings["sync_module_states"] = False
    try:
        plugin = FullyShardedDataParallelPlugin(**settings)
    except (ValueError, TypeError, KeyError) as error:
        raise ArgumentError("fsdp_config", args.fsdp_config, f"accelerate refuses it: {error}") from error
    if plugin.fsdp_version == 1 and not plugin.use_orig_params:
        # One flat parameter has one weight decay, also of its biases and norms, which are to have none.
        logger.info("FSDP: use_orig_params is True here, since parameter groups do not survive without it.")
        plugin.use_orig_params = True
    return plugin
