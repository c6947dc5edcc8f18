"""Arguments checked alone and together, before anything is built."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError
from . import names

AT_LEAST_ONE = ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps")
NOT_NEGATIVE = (
    "learning_rate",
    "weight_decay",
    "adam_epsilon",
    "max_grad_norm",
    "warmup_steps",
    "num_train_epochs",
    "dataloader_num_workers",
    "eval_delay",
    "save_steps",
)
OPTIONAL_AT_LEAST_ONE = (
    "save_total_limit",
    "torch_empty_cache_steps",
    "eval_accumulation_steps",
    "dataloader_prefetch_factor",
    "ddp_timeout",
)
BELOW_ONE = ("adam_beta1", "adam_beta2", "label_smoothing_factor")


def validate(args: Any) -> None:
    """Check the values that need no model and no data.

    Raises:
        ArgumentError: names the first argument that cannot work, its value, and the fix.
    """
    for check in (_numbers, _levels, _steps, _precision, _best_model, _data, _evaluation, _names):
        check(args)


def _number(args: Any, name: str) -> float:
    value = getattr(args, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        try:
            value = float(value)
        except (TypeError, ValueError):
            raise ArgumentError(name, value, "give a number") from None
        setattr(args, name, int(value) if value.is_integer() and name != "learning_rate" else value)
    if value != value:
        raise ArgumentError(name, value, "give a number")
    return float(value)


def _numbers(args: Any) -> None:
    for name in AT_LEAST_ONE:
        value = _number(args, name)
        if value < 1 or value != int(value):
            raise ArgumentError(name, getattr(args, name), "give a whole number of at least 1")
    for name in NOT_NEGATIVE:
        if _number(args, name) < 0:
            raise ArgumentError(name, getattr(args, name), "give 0 or more")
    for name in BELOW_ONE:
        if not 0 <= _number(args, name) < 1:
            raise ArgumentError(name, getattr(args, name), "give a number from 0 to below 1")
    for name in OPTIONAL_AT_LEAST_ONE:
        if getattr(args, name) is not None and _number(args, name) < 1:
            raise ArgumentError(name, getattr(args, name), "give at least 1, or leave it out")
    if _number(args, "max_steps") <= 0 and args.num_train_epochs <= 0:
        raise ArgumentError("num_train_epochs", args.num_train_epochs, "give more than 0, or max_steps")
    if args.max_steps == 0 or args.max_steps != int(args.max_steps):
        raise ArgumentError("max_steps", args.max_steps, "give a whole number above 0, or -1 to go by num_train_epochs")
    if args.neftune_noise_alpha is not None and _number(args, "neftune_noise_alpha") < 0:
        raise ArgumentError("neftune_noise_alpha", args.neftune_noise_alpha, "give 0 or more, often 5")


def _levels(args: Any) -> None:
    for name in ("log_level", "log_level_replica"):
        value = getattr(args, name)
        if value not in names.LOG_LEVELS:
            raise ArgumentError(name, value, f"give one of {', '.join(names.LOG_LEVELS)}")


def _steps(args: Any) -> None:
    for strategy, name in (
        ("logging_strategy", "logging_steps"),
        ("eval_strategy", "eval_steps"),
        ("save_strategy", "save_steps"),
    ):
        if getattr(args, strategy) != "steps":
            continue
        value = _number(args, name)
        if value <= 0:
            raise ArgumentError(name, value, f"give a number above 0, or {strategy}='no'")
        if value > 1 and value != int(value):
            raise ArgumentError(name, value, "give a whole number of steps, or a share below 1")
        if value >= 1:
            setattr(args, name, int(value))


def _precision(args: Any) -> None:
    if args.fp16 and args.bf16:
        raise ArgumentError("fp16", True, "give fp16 or bf16, not both")
    if args.fp16_full_eval and args.bf16_full_eval:
        raise ArgumentError("fp16_full_eval", True, "give fp16_full_eval or bf16_full_eval, not both")
    if args.fp16 and args.use_cpu:
        raise ArgumentError("fp16", True, "use bf16 on the CPU: float16 needs an accelerator")
    if args.fsdp and args.deepspeed:
        raise ArgumentError("fsdp", args.fsdp, "give fsdp or deepspeed, not both")
    if args.include_num_input_tokens_seen not in ("all", "non_padding", "no"):
        raise ArgumentError(
            "include_num_input_tokens_seen", args.include_num_input_tokens_seen, "give 'all', 'non_padding' or 'no'"
        )


def _best_model(args: Any) -> None:
    if args.save_strategy == "best" and args.eval_strategy == "no":
        raise ArgumentError(
            "save_strategy", "best", "give eval_strategy='steps' or 'epoch': the best needs evaluations"
        )
    if not args.load_best_model_at_end or args.save_strategy == "best":
        return
    if args.eval_strategy == "no":
        raise ArgumentError("load_best_model_at_end", True, "give eval_strategy='steps' or 'epoch'")
    if args.eval_strategy != args.save_strategy:
        raise ArgumentError(
            "save_strategy",
            str(args.save_strategy),
            f"give {str(args.eval_strategy)!r} like eval_strategy, or 'best': load_best_model_at_end needs a "
            "checkpoint of what was evaluated",
        )
    if args.eval_strategy == "steps" and not _is_multiple(args.save_steps, args.eval_steps):
        raise ArgumentError(
            "save_steps",
            args.save_steps,
            f"give a multiple of eval_steps ({args.eval_steps}): load_best_model_at_end needs a checkpoint of what was "
            "evaluated",
        )


def _is_multiple(saves: float, evaluations: float) -> bool:
    if (saves < 1) != (evaluations < 1):
        return False
    return round(saves * 1_000_000) % round(evaluations * 1_000_000) == 0


def _data(args: Any) -> None:
    if args.dataloader_num_workers == 0:
        if args.dataloader_prefetch_factor is not None:
            raise ArgumentError(
                "dataloader_prefetch_factor", args.dataloader_prefetch_factor, "give dataloader_num_workers above 0 too"
            )
        if args.dataloader_persistent_workers:
            raise ArgumentError("dataloader_persistent_workers", True, "give dataloader_num_workers above 0 too")
    if args.dataloader_multiprocessing_context not in (None, "fork", "spawn", "forkserver"):
        raise ArgumentError(
            "dataloader_multiprocessing_context",
            args.dataloader_multiprocessing_context,
            "give 'fork', 'spawn' or 'forkserver'",
        )


def _evaluation(args: Any) -> None:
    unknown = [name for name in args.include_for_metrics if name not in ("inputs", "loss")]
    if unknown:
        raise ArgumentError("include_for_metrics", unknown, "give 'inputs', 'loss' or both")


def _names(args: Any) -> None:
    if isinstance(args.lr_scheduler_kwargs, str):
        raise ArgumentError(
            "lr_scheduler_kwargs", args.lr_scheduler_kwargs, "give a dict, or JSON such as '{\"a\": 1}'"
        )
    if args.activation_checkpointing_kwargs and not args.activation_checkpointing:
        raise ArgumentError(
            "activation_checkpointing_kwargs",
            args.activation_checkpointing_kwargs,
            "give activation_checkpointing=True too",
        )


def validate_with_data(args: Any, *, has_eval_dataset: bool, has_metrics: bool) -> None:
    """Check what depends on what else the Trainer is given.

    Raises:
        ArgumentError: names the argument, the value and the fix.
    """
    if args.eval_strategy != "no" and not has_eval_dataset:
        raise ArgumentError(
            "eval_strategy", str(args.eval_strategy), "give the Trainer an eval_dataset, or eval_strategy='no'"
        )
    if args.eval_on_start and not has_eval_dataset:
        raise ArgumentError("eval_on_start", True, "give the Trainer an eval_dataset")
    wanted = (args.metric_for_best_model or "loss").removeprefix("eval_")
    if args.load_best_model_at_end and not has_metrics and not wanted.endswith("loss"):
        raise ArgumentError(
            "metric_for_best_model", args.metric_for_best_model, "give compute_metrics, which must return it, or 'loss'"
        )
    if args.batch_eval_metrics and not has_metrics:
        raise ArgumentError("batch_eval_metrics", True, "give compute_metrics, which it calls for each batch")
