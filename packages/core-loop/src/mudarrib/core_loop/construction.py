"""What a Trainer is made of: checks of what it is given, its engine, its callbacks."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from . import optimizers
from .arguments import TrainingArguments
from .callbacks import DefaultFlowCallback, PrinterCallback, ProgressCallback
from .callbacks.handler import as_instances
from .callbacks.jsonl import JsonLinesCallback
from .callbacks.report import report_callbacks
from .distributed import engine_for, is_asked_for
from .engine import Engine
from .errors import ArgumentError


def deprecated(old: str, new: str) -> None:
    warnings.warn(f"{old}= is an old spelling of {new}=; it works, and {new}= is its name now.", FutureWarning, 4)


def old_spellings(processing_class: Any, callbacks: Any, given: dict[str, Any]) -> tuple[Any, Any]:
    """The processing class and the callbacks, where they came as `tokenizer=` and `callback=`.

    Raises:
        TypeError: a keyword that never was one, or both spellings at once.
    """
    for old, new, current in (
        ("tokenizer", "processing_class", processing_class),
        ("callback", "callbacks", callbacks),
    ):
        if given.get(old) is not None and current is not None:
            raise TypeError(f"Trainer got both {new}= and its old spelling {old}=; give {new}= alone.")
    if "tokenizer" in given:
        deprecated("tokenizer", "processing_class")
        processing_class = given.pop("tokenizer") or processing_class
    if "callback" in given:
        deprecated("callback", "callbacks")
        callbacks = given.pop("callback") or callbacks
    if given:
        raise TypeError(f"Trainer got an unexpected keyword argument {next(iter(given))!r}.")
    return processing_class, callbacks


def old_resume(resume: str | bool | None, given: dict[str, Any]) -> str | bool | None:
    if "model_path" in given:
        deprecated("model_path", "resume_from_checkpoint")
        resume = given.pop("model_path")
    if given:
        raise TypeError(f"train() got an unexpected keyword argument {next(iter(given))!r}.")
    return resume


def missing(argument: str, fix: str) -> ArgumentError:
    return ArgumentError(argument, None, fix)


def check_model(model: Any, model_init: Any) -> None:
    """Refuse a model that cannot be trained.

    Raises:
        ArgumentError: names the argument, the value and the fix.
    """
    if (model is None) == (model_init is None):
        raise ArgumentError("model", model, "give either model= or model_init=, and not both")
    if model is not None and not isinstance(model, torch.nn.Module):
        raise ArgumentError("model", type(model).__name__, "give a torch.nn.Module")
    if model is not None and any(parameter.device.type == "meta" for parameter in model.parameters()):
        raise ArgumentError("model", "on the meta device", "load its weights first: it has none yet")
    if model is not None and not any(parameter.requires_grad for parameter in model.parameters()):
        raise ArgumentError("model", "no parameter requires a gradient", "unfreeze what is to be trained")


def check_optimizers(args: Any, model_init: Any, given_optimizers: tuple[Any, Any], cls_and_settings: Any) -> None:
    """Refuse optimizers that do not fit each other, or a name that nobody knows.

    Raises:
        ArgumentError: names the argument, the value and the fix.
    """
    if given_optimizers[0] is not None and cls_and_settings is not None:
        raise ArgumentError("optimizers", given_optimizers, "give optimizers= or optimizer_cls_and_kwargs=, not both")
    if given_optimizers[0] is not None and model_init is not None:
        raise ArgumentError(
            "optimizers", given_optimizers, "with model_init= override create_optimizer: the model is made anew"
        )
    if given_optimizers[0] is None and cls_and_settings is None:
        optimizers.check_name(str(args.optim))


def check_data(train_dataset: Any, eval_dataset: Any, data_collator: Any) -> None:
    """Refuse data that are no rows, and a collator that cannot be called.

    Raises:
        ArgumentError: names the argument, the value and the fix.
    """
    for name, given in (("train_dataset", train_dataset), ("eval_dataset", eval_dataset)):
        if isinstance(given, str | Path):
            raise ArgumentError(name, str(given), "give the rows: load them first, as by datasets.load_dataset")
        if name == "train_dataset" and isinstance(given, Mapping):
            raise ArgumentError(name, list(given), "give one of them, such as dataset['train']")
        if given is not None and not hasattr(given, "__getitem__") and not hasattr(given, "__iter__"):
            raise ArgumentError(name, type(given).__name__, "give rows: a data set, or a list of dicts")
    if data_collator is not None and not callable(data_collator):
        raise ArgumentError("data_collator", data_collator, "give a function of a list of rows that returns a batch")


def named_dataset(eval_dataset: Any, name: str) -> Any:
    """One of several evaluation data sets.

    Raises:
        ArgumentError: there is none of that name.
    """
    if not isinstance(eval_dataset, Mapping) or name not in eval_dataset:
        known = list(eval_dataset) if isinstance(eval_dataset, Mapping) else "not a dict"
        raise ArgumentError(
            "eval_dataset", name, f"give rows, or one of the names of the Trainer's eval_dataset ({known})"
        )
    return eval_dataset[name]


def own_arguments(args: Any) -> TrainingArguments:
    """The arguments; the peers' own are taken for what they say."""
    if args is None:
        return TrainingArguments("tmp_trainer")
    if isinstance(args, TrainingArguments):
        return args
    if not dataclasses.is_dataclass(args):
        raise ArgumentError("args", type(args).__name__, "give TrainingArguments")
    known = {field.name for field in dataclasses.fields(TrainingArguments)}
    given = {field.name: getattr(args, field.name) for field in dataclasses.fields(args) if field.name in known}
    return TrainingArguments(**{name: value for name, value in given.items() if is_plain(value)})


def is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | list | dict)


def make_folder(folder: Path) -> None:
    """Make the run's folder.

    Raises:
        ArgumentError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(
            "output_dir", str(folder), f"give a folder that can be written ({error.strerror})"
        ) from error


def choose_engine(args: Any) -> Engine:
    """One process on torch alone, or several through accelerate."""
    if args.tf32 is not None:
        torch.backends.cuda.matmul.allow_tf32 = args.tf32
        torch.backends.cudnn.allow_tf32 = args.tf32
    return engine_for(args) if is_asked_for(args) else Engine(args)


def base_model(model: torch.nn.Module) -> torch.nn.Module:
    """The model whose `forward` takes the columns: inside a PEFT wrapper, the one it adapts."""
    inner = getattr(model, "get_base_model", None)
    return inner() if callable(inner) else model


def place_model(model: torch.nn.Module, args: Any, engine: Engine) -> None:
    """Move the model to the device, unless something else places it."""
    placed_elsewhere = (
        len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1
        or getattr(model, "quantization_method", None) == "bitsandbytes"
    )
    if not placed_elsewhere:
        engine.place(model)
    config = getattr(model, "config", None)
    if config is not None and hasattr(config, "use_cache"):
        config.use_cache = args.use_cache
    if args.use_liger_kernel:
        _apply_liger(model, args.liger_kernel_config)


def _apply_liger(model: torch.nn.Module, settings: dict[str, Any] | None) -> None:
    try:
        from liger_kernel.transformers import _apply_liger_kernel_to_instance
    except ImportError as error:
        raise ArgumentError("use_liger_kernel", True, "pip install liger-kernel, or leave it False") from error
    _apply_liger_kernel_to_instance(model=base_model(model), **(settings or {}))


def call_model_init(model_init: Callable[..., torch.nn.Module] | None, trial: Any) -> torch.nn.Module:
    """A new model; `model_init` may take the trial."""
    if model_init is None:
        raise missing("model_init", "give a function that makes the model")
    parameters = inspect.signature(model_init).parameters.values()
    required = [parameter for parameter in parameters if parameter.default is parameter.empty]
    if len(required) > 1:
        raise ArgumentError("model_init", model_init, "it takes no argument, or the trial alone")
    model = model_init(trial) if required or len(parameters) == 1 else model_init()
    if model is None:
        raise ArgumentError("model_init", None, "it returned no model")
    return model


def all_callbacks(args: Any, given: Any) -> list[Any]:
    """Default flow, reports, the user's, and a progress bar or printed lines."""
    shown = PrinterCallback if args.disable_tqdm else ProgressCallback
    return [
        DefaultFlowCallback(),
        *report_callbacks(args.report_to),
        *as_instances(given),
        JsonLinesCallback(),
        shown(),
    ]
