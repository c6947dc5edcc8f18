"""The config against the training arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..config import Config
from ..phrases import phrase
from .base import rule
from .deepspeed import json_file

Findings = Iterator[dict[str, Any]]
IN_BACKWARD = ("lomo", "adalomo")
NEED_MATRICES = ("galore", "apollo", "muon", "adafactor")
FILE = "deepspeed_config.deepspeed_config_file"


def _steps_in_backward(optim: Any) -> bool:
    return str(optim) in IN_BACKWARD or str(optim).endswith("_layerwise")


def _differs(config: Config, key: str, given: Any, name: str, stops: bool = True) -> Findings:
    """A value of the config against an argument of the same meaning."""
    training = config.context.training
    if given in (None, "auto") or name not in training or training[name] is None or given == training[name]:
        return
    yield {
        "key": key,
        "message": phrase(
            "{key} is {given!r}, {name} is {value!r}", key=key, given=given, name=name, value=training[name]
        ),
        "consequence": phrase("the run stops after its imports, or one of them is not obeyed."),
        "fix": phrase('give both the same value, or "auto" in DeepSpeed\'s file'),
        "stops": stops,
    }


@rule("T001")
def accumulation(config: Config) -> Findings:
    """Accumulation of DeepSpeed's plugin is that of the arguments."""
    key = "deepspeed_config.gradient_accumulation_steps"
    yield from _differs(config, key, config.get(key), "gradient_accumulation_steps")


@rule("T002")
def clipping(config: Config) -> Findings:
    """Clipping of DeepSpeed's plugin is that of the arguments."""
    key = "deepspeed_config.gradient_clipping"
    yield from _differs(config, key, config.get(key), "max_grad_norm", stops=False)


@rule("T003")
def precision(config: Config) -> Findings:
    """The launcher's precision and that of the arguments are one."""
    training, launched = config.context.training, config.get("mixed_precision")
    asked = next((name for name in ("fp16", "bf16") if training.get(name)), None)
    if asked and launched in ("fp16", "bf16") and launched != asked:
        yield {
            "key": "mixed_precision",
            "message": phrase(
                "mixed_precision is {launched}, but the arguments say {asked}", launched=launched, asked=asked
            ),
            "consequence": phrase("the arguments win; under DeepSpeed the run stops."),
            "fix": phrase("give {near}", near=asked),
            "value": asked,
        }


FROM_FILE = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
    "optimizer.params.lr": "learning_rate",
    "optimizer.params.eps": "adam_epsilon",
    "optimizer.params.weight_decay": "weight_decay",
    "scheduler.params.warmup_max_lr": "learning_rate",
    "scheduler.params.warmup_num_steps": "warmup_steps",
    "bf16.enabled": "bf16",
    "fp16.enabled": "fp16",
}


def file_values(config: Config) -> dict[str, Any]:
    """DeepSpeed's own settings, flat; empty where its file cannot be read, which other rules tell."""
    _, path = json_file(config)
    if path is None or not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    flat: dict[str, Any] = {}

    def flatten(value: Any, prefix: str) -> None:
        for name, inner in value.items() if isinstance(value, dict) else ():
            flat[f"{prefix}{name}"] = inner
            flatten(inner, f"{prefix}{name}.")

    flatten(found, "")
    return flat


@rule("T004")
def the_file_s_values(config: Config) -> Findings:
    """What DeepSpeed's file fixes is what the arguments say."""
    values = file_values(config)
    for name, argument in FROM_FILE.items():
        for found in _differs(config, name, values.get(name), argument):
            yield {**found, "key": FILE}


@rule("T005")
def the_file_s_batch(config: Config) -> Findings:
    """train_batch_size is rows of a process x accumulation x processes."""
    training, given = config.context.training, file_values(config).get("train_batch_size")
    rows, processes = training.get("per_device_train_batch_size"), config.number("num_processes")
    steps = training.get("gradient_accumulation_steps")
    if not isinstance(given, int) or not isinstance(rows, int) or not isinstance(steps, int) or not processes:
        return
    if given != rows * steps * processes:
        yield {
            "key": FILE,
            "message": phrase(
                "train_batch_size is {given}; {rows} rows x {steps} accumulated x {processes} processes are {product}",
                given=given,
                rows=rows,
                steps=steps,
                processes=processes,
                product=rows * steps * processes,
            ),
            "consequence": phrase("each process fails when DeepSpeed starts."),
            "fix": phrase('write "train_batch_size": "auto"'),
        }


@rule("T006")
def the_file_s_optimizer(config: Config) -> Findings:
    """An optimizer in DeepSpeed's file takes the place of `optim`."""
    optim, given = config.context.training.get("optim"), file_values(config).get("optimizer.type")
    if given and optim and not str(optim).startswith("adamw_torch"):
        yield {
            "key": FILE,
            "message": phrase(
                "DeepSpeed's file names the optimizer {given}, the arguments {optim}", given=given, optim=optim
            ),
            "consequence": phrase("the file wins, without a word."),
            "fix": phrase("remove the optimizer from the file, or from the arguments"),
        }


@rule("T007")
def optimizers_in_backward(config: Config) -> Findings:
    """Optimizers that step inside backward need to see each whole gradient."""
    optim = config.context.training.get("optim")
    old = config.kind == "FSDP" and config.get("fsdp_config.fsdp_version", 1) == 1
    if _steps_in_backward(optim) and (config.kind == "DEEPSPEED" or old):
        yield {
            "key": "distributed_type",
            "message": phrase("optim={optim} steps inside backward", optim=optim),
            "consequence": phrase("DeepSpeed and FSDP 1 keep gradients in flat pieces: it cannot work, or fails late."),
            "fix": phrase("use MULTI_GPU or fsdp_version: 2, or an optimizer without _layerwise"),
        }


def _stage(config: Config) -> Any:
    """DeepSpeed's stage of splitting, by its file or by the config."""
    if config.get(FILE):
        return file_values(config).get("zero_optimization.stage", 0)
    return config.get("deepspeed_config.zero_stage", 2)


@rule("T008")
def matrices_in_pieces(config: Config) -> Findings:
    """Optimizers that look at matrices need whole ones, also with fsdp_use_orig_params."""
    optim = str(config.context.training.get("optim", ""))
    if not optim.startswith(NEED_MATRICES) or _steps_in_backward(optim):
        return
    version_1 = config.kind == "FSDP" and config.get("fsdp_config.fsdp_version", 1) == 1
    replaced = "optimizer.type" in file_values(config)
    split = config.kind == "DEEPSPEED" and _stage(config) not in (0, "0") and not replaced
    if split or version_1 or (config.kind == "FSDP" and optim == "adafactor"):
        version_2 = phrase("set fsdp_version: 2, or use MULTI_GPU")
        otherwise = phrase("use MULTI_GPU, or an optimizer that looks at each number alone, such as adamw_torch")
        yield {
            "key": "fsdp_config" if version_1 else "distributed_type",
            "message": phrase("optim={optim} reads each gradient as a matrix", optim=optim),
            "consequence": phrase("it gets pieces: it fails at its first step, or trains differently without a word."),
            "fix": version_2 if version_1 and optim != "adafactor" else otherwise,
        }


@rule("T009")
def weight_decay_by_group(config: Config) -> Findings:
    """Flat parameters have one weight decay."""
    decay, section = config.context.training.get("weight_decay"), config.section("fsdp_config")
    if (
        config.kind == "FSDP"
        and section.get("fsdp_version", 1) == 1
        and section.get("fsdp_use_orig_params") is False
        and decay
    ):
        yield {
            "key": "fsdp_config.fsdp_use_orig_params",
            "message": phrase("weight_decay with fsdp_use_orig_params off"),
            "consequence": phrase("biases and norms decay, too: a flat parameter has one weight decay."),
            "fix": phrase("set fsdp_use_orig_params: true"),
            "value": True,
        }


@rule("T010")
def recomputed_twice(config: Config) -> Findings:
    """Activations are recomputed once."""
    training = config.context.training
    asked = training.get("gradient_checkpointing") or training.get("activation_checkpointing")
    if config.kind == "FSDP" and config.get("fsdp_config.fsdp_activation_checkpointing") is True and asked:
        yield {
            "key": "fsdp_config.fsdp_activation_checkpointing",
            "message": phrase("both FSDP and the arguments checkpoint activations"),
            "consequence": phrase("layers are computed three times, with another gather for each."),
            "fix": phrase("keep FSDP's, and leave gradient_checkpointing False"),
        }


@rule("T011")
def two_plugins(config: Config) -> Findings:
    """The arguments ask for the kind that is launched."""
    training = config.context.training
    for name, kind in (("fsdp", "FSDP"), ("deepspeed", "DEEPSPEED")):
        if training.get(name) and config.kind in ("FSDP", "DEEPSPEED") and config.kind != kind:
            yield {
                "key": "distributed_type",
                "message": phrase(
                    "distributed_type is {kind}, but the arguments have {name}", kind=config.kind, name=name
                ),
                "consequence": phrase("two plugins are set up, and the run stops or takes one of them."),
                "fix": phrase("keep one of them"),
            }


@rule("T012")
def one_device(config: Config) -> Findings:
    """The arguments and the launcher mean the same device."""
    if config.context.training.get("use_cpu") is True and config.get("use_cpu") is False and config.kind != "NO":
        yield {
            "key": "use_cpu",
            "message": phrase("the arguments say use_cpu, the config does not"),
            "consequence": phrase("processes are placed on GPUs and train on the CPU."),
            "fix": phrase("set use_cpu: true"),
            "value": True,
        }


@rule("T013")
def states_that_can_be_saved(config: Config) -> Findings:
    """LOCAL_STATE_DICT cannot be saved as a checkpoint."""
    saves = config.context.training.get("save_strategy", "no")
    local = str(config.get("fsdp_config.fsdp_state_dict_type")).upper() == "LOCAL_STATE_DICT"
    if config.kind == "FSDP" and local and saves != "no":
        yield {
            "key": "fsdp_config.fsdp_state_dict_type",
            "message": phrase("LOCAL_STATE_DICT with save_strategy={saves}", saves=saves),
            "consequence": phrase("the first checkpoint fails, after all steps before it."),
            "fix": phrase("give SHARDED_STATE_DICT, or FULL_STATE_DICT"),
            "value": "SHARDED_STATE_DICT",
        }


@rule("T014")
def best_model_of_shards(config: Config) -> Findings:
    """The peers' Trainer cannot put sharded states back into the model at the end."""
    training = config.context.training
    sharded = str(config.get("fsdp_config.fsdp_state_dict_type")).upper() == "SHARDED_STATE_DICT"
    if config.kind == "FSDP" and sharded and training.get("save_only_model"):
        yield {
            "key": "fsdp_config.fsdp_state_dict_type",
            "message": phrase("SHARDED_STATE_DICT with save_only_model"),
            "consequence": phrase("transformers' Trainer stops; that of mudarrib writes whole models instead."),
            "fix": phrase("give FULL_STATE_DICT"),
            "value": "FULL_STATE_DICT",
            "stops": False,
        }


@rule("T015")
def half_precision_on_cpu(config: Config) -> Findings:
    """float16 in the arguments on the CPU runs in float32 without a word."""
    training = config.context.training
    on_cpu = config.get("use_cpu") is True or training.get("use_cpu") is True
    if training.get("fp16") is True and on_cpu:
        yield {
            "key": "use_cpu",
            "message": phrase("the arguments have fp16, and training is on the CPU"),
            "consequence": phrase("everything runs in float32, and nothing says so."),
            "fix": phrase("set bf16 in the arguments, or neither"),
        }
