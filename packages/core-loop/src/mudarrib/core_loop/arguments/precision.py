"""Precision, memory, compilation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .field import argument


@dataclass
class PrecisionArguments:
    bf16: bool = argument(False, "Compute in bfloat16 where it is safe (autocast).")
    fp16: bool = argument(False, "Compute in float16 where it is safe, with scaled gradients; needs an accelerator.")
    bf16_full_eval: bool = argument(False, "Evaluate wholly in bfloat16, outside of training.")
    fp16_full_eval: bool = argument(False, "Evaluate wholly in float16, outside of training.")
    tf32: bool | None = argument(None, "Allow TF32 matrix products; None leaves torch's default.")
    activation_checkpointing: bool | None = argument(
        None, "Compute activations again in the backward pass: less memory, slower."
    )
    activation_checkpointing_kwargs: dict[str, Any] | str | None = argument(
        None, "Settings of activation checkpointing, as a dict."
    )
    gradient_checkpointing: bool | None = argument(None, "The older name of activation_checkpointing.")
    gradient_checkpointing_kwargs: dict[str, Any] | str | None = argument(
        None, "The older name of activation_checkpointing_kwargs."
    )
    torch_compile: bool = argument(False, "Compile the model with torch.compile.")
    torch_compile_backend: str | None = argument(None, "Backend of torch.compile; sets torch_compile.")
    torch_compile_mode: str | None = argument(None, "Mode of torch.compile; sets torch_compile.")
    use_liger_kernel: bool = argument(False, "Use the Liger kernels (package liger-kernel).")
    liger_kernel_config: dict[str, bool] | None = argument(None, "Which Liger kernels, as a dict.")
    use_cache: bool = argument(False, "Let the model keep its key-value cache, which training does not need.")
    torch_empty_cache_steps: int | None = argument(
        None, "Give cached device memory back every so many steps: lower peak, slower."
    )
    auto_find_batch_size: bool = argument(False, "Halve the batch size and try again when memory runs out.")
    debug: str | list[str] = argument(
        "", "'underflow_overflow' looks for infinite and NaN values in the model's activations."
    )
    skip_memory_metrics: bool = argument(True, "Leave peak memory out of the metrics.")
