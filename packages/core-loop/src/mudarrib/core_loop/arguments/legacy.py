"""Old spellings of arguments: each works, with one line that names the new one, or says what became of it."""

from __future__ import annotations

import dataclasses
import difflib
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import ArgumentError

Values = dict[str, Any]

RENAMED = {
    "evaluation_strategy": "eval_strategy",
    "no_cuda": "use_cpu",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "push_to_hub_model_id": "hub_model_id",
    "push_to_hub_token": "hub_token",
    "include_tokens_per_second": "include_num_input_tokens_seen",
    "torchdynamo": "torch_compile_backend",
}
# What is no longer to be chosen, and why; a value that asked for the other way is refused.
GONE = {
    "overwrite_output_dir": "a folder is never wiped: checkpoints of the same steps are replaced",
    "use_mps_device": "an MPS device is used where there is one",
    "save_safetensors": "weights are always saved as safetensors",
    "fp16_backend": "half precision is torch's own",
    "half_precision_backend": "half precision is torch's own",
    "fp16_opt_level": "half precision is torch's own, Apex is not used",
    "use_ipex": "torch has its own CPU optimisations",
    "jit_mode_eval": "use torch_compile",
    "tpu_num_cores": "the launcher sets the number of processes",
    "tpu_metrics_debug": "TPUs are not supported here",
    "past_index": "no model returns its past by index any more",
    "mp_parameters": "SageMaker's model parallelism is not supported",
    "sharded_ddp": "use fsdp",
    "xpu_backend": "use ddp_backend",
    "fp16_full_train": "use fp16",
    "ray_scope": "pass scope= to hyperparameter_search",
    "use_legacy_prediction_loop": "there is one evaluation loop",
    "ddp_launch": "use accelerate launch",
    "eval_use_legacy_loop": "there is one evaluation loop",
}


def deprecated(old: str, new: str) -> None:
    warnings.warn(f"{old} is an old spelling of {new}; it works, and {new} is its name now.", FutureWarning, 5)


def _warmup_ratio(value: Any, values: Values) -> None:
    deprecated("warmup_ratio", "warmup_steps (a share below 1)")
    if not 0 <= float(value) < 1:
        raise ArgumentError("warmup_ratio", value, "give a share of all steps, from 0 to below 1")
    if not values.get("warmup_steps"):
        values["warmup_steps"] = float(value)


def _logging_dir(value: Any, values: Values) -> None:
    warnings.warn(
        "logging_dir is an old argument; TensorBoard writes there, and the environment variable "
        "TENSORBOARD_LOGGING_DIR says so now.",
        FutureWarning,
        5,
    )
    import os

    if value is not None:
        os.environ["TENSORBOARD_LOGGING_DIR"] = str(value)


def _group_by_length(value: Any, values: Values) -> None:
    deprecated("group_by_length", "train_sampling_strategy='group_by_length'")
    if value:
        values.setdefault("train_sampling_strategy", "group_by_length")


def _inputs_for_metrics(value: Any, values: Values) -> None:
    deprecated("include_inputs_for_metrics", "include_for_metrics=['inputs']")
    if value:
        values["include_for_metrics"] = [*(values.get("include_for_metrics") or []), "inputs"]


def _adafactor(value: Any, values: Values) -> None:
    deprecated("adafactor", "optim='adafactor'")
    if value:
        values["optim"] = "adafactor"


def _organization(value: Any, values: Values) -> None:
    deprecated("push_to_hub_organization", "hub_model_id='organization/name'")
    name = values.get("hub_model_id") or values.get("push_to_hub_model_id") or Path(str(values.get("output_dir"))).name
    if value:
        values.pop("push_to_hub_model_id", None)
        values["hub_model_id"] = f"{value}/{str(name).split('/')[-1]}"


def _accelerator(name: str) -> Callable[[Any, Values], None]:
    def move(value: Any, values: Values) -> None:
        deprecated(name, f"accelerator_config={{{name!r}: ...}}")
        given = values.get("accelerator_config")
        if isinstance(given, str):
            given = parse_json(name, given) if given.lstrip().startswith("{") else read_json(name, given)
        values["accelerator_config"] = {**(given or {}), name: value}

    return move


def _fsdp(old: str, new: str) -> Callable[[Any, Values], None]:
    def move(value: Any, values: Values) -> None:
        deprecated(old, f"fsdp_config={{{new!r}: ...}}")
        values["fsdp_config"] = {**(values.get("fsdp_config") or {}), new: value}

    return move


MOVED: dict[str, Callable[[Any, Values], None]] = {
    "warmup_ratio": _warmup_ratio,
    "logging_dir": _logging_dir,
    "group_by_length": _group_by_length,
    "include_inputs_for_metrics": _inputs_for_metrics,
    "adafactor": _adafactor,
    "push_to_hub_organization": _organization,
    "dispatch_batches": _accelerator("dispatch_batches"),
    "split_batches": _accelerator("split_batches"),
    "even_batches": _accelerator("even_batches"),
    "fsdp_min_num_params": _fsdp("fsdp_min_num_params", "min_num_params"),
    "fsdp_transformer_layer_cls_to_wrap": _fsdp("fsdp_transformer_layer_cls_to_wrap", "transformer_layer_cls_to_wrap"),
}
OLD_NAMES = (*RENAMED, *MOVED, *GONE)


def translate(cls: type, values: Values) -> Values:
    """Turn old spellings among a constructor's keywords into today's, in place.

    Returns:
        What is not a field but is read as an attribute: `logging_dir`.

    Raises:
        TypeError: a keyword that never was an argument; names the nearest.
    """
    fields = {field.name for field in dataclasses.fields(cls)}
    extras = {"logging_dir": values["logging_dir"]} if "logging_dir" in values else {}
    for name in [name for name in values if name not in fields]:
        if name not in OLD_NAMES:
            near = difflib.get_close_matches(name, [*fields, *OLD_NAMES], n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{cls.__name__} got an unexpected argument {name!r}.{hint}")
        if name in MOVED:
            MOVED[name](values.pop(name), values)
            continue
        value = values.pop(name, None)
        if name in RENAMED:
            _rename(name, value, values)
        else:
            _let_go(name, value)
    return extras


def _rename(old: str, value: Any, values: Values) -> None:
    new = RENAMED[old]
    deprecated(old, new)
    if value is not None:
        if values.get(new) not in (None, value):
            raise ArgumentError(old, value, f"{new} = {values[new]!r} is given too: give {new} alone")
        values[new] = value


def _let_go(name: str, value: Any) -> None:
    if name == "save_safetensors" and value is False:
        raise ArgumentError(name, value, "leave it out: pickled weights run code when they are loaded")
    warnings.warn(f"{name} is an old argument without an effect now: {GONE[name]}.", FutureWarning, 4)


def parse_json(argument: str, text: str) -> dict[str, Any]:
    """A dict from JSON text.

    Raises:
        ArgumentError: it is no JSON object.
    """
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ArgumentError(argument, text, f"it is not valid JSON: {error}") from error
    if not isinstance(values, Mapping):
        raise ArgumentError(argument, text, 'give a JSON object such as {"name": 1}')
    return dict(values)


def read_json(argument: str, path: str) -> dict[str, Any]:
    """A dict from a JSON file.

    Raises:
        ArgumentError: no such file, or no JSON object in it.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ArgumentError(argument, path, f"give a dict or the path of a JSON file: {error.strerror}") from error
    return parse_json(argument, text)
