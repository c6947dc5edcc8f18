"""`mudarrib-sft`: from a YAML file or flags to a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mudarrib.core_loop import ArgumentError, parse_args

from .config import SFTConfig, option

if TYPE_CHECKING:
    from .trainer import SFTTrainer

LOADERS = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "text"}


@dataclass
class RunArguments:
    """What to train on what; the other flags are the fields of `SFTConfig`."""

    model_name_or_path: str | None = option(None, "Model to train: a folder, or a name on the hub.")
    model_revision: str | None = option(None, "Branch, tag or commit of the model on the hub.")
    attn_implementation: str | None = option(None, "eager, sdpa, flex_attention, flash_attention_2 …")
    dtype: str | None = option(None, "Type of the weights, float32 by default: bfloat16, float16 …")
    dataset_name: str | None = option(
        None,
        "Data: a .json, .jsonl, .csv, .parquet or .txt file, a folder that save_to_disk wrote, or a name on the hub.",
    )
    dataset_config: str | None = option(None, "Configuration of a data set on the hub.")
    dataset_train_split: str = option("train", "Split to train on.")
    dataset_test_split: str = option("test", "Split to evaluate on, where eval_strategy asks for it.")
    dataset_test_name: str | None = option(None, "Data to evaluate on, if they are elsewhere; as dataset_name.")
    dataset_streaming: bool = option(False, "Read the data as they are needed.")
    use_peft: bool = option(False, "Train a LoRA adapter instead of the whole model.")
    lora_r: int = option(16, "Rank of the adapters.")
    lora_alpha: int = option(32, "Their scale is lora_alpha / lora_r.")
    lora_dropout: float = option(0.05, "Dropout before the adapters.")
    lora_target_modules: str = option("all-linear", "Comma-separated names of the layers to adapt, or all-linear.")
    lora_modules_to_save: str | None = option(None, "Comma-separated names of modules to train whole.")
    use_rslora: bool = option(False, "Scale by lora_alpha / sqrt(lora_r).")
    use_dora: bool = option(False, "Adapt direction and magnitude apart (DoRA).")
    load_in_4bit: bool = option(False, "Quantize the base model to 4 bits (bitsandbytes).")
    load_in_8bit: bool = option(False, "Quantize the base model to 8 bits (bitsandbytes).")
    merge_adapters: bool = option(False, "Write the whole model with the adapters merged, too, into merged/.")
    dry_run: bool = option(False, "Show a batch, lengths, padding and an estimate of the time, and stop.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with these arguments, or those of the process."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        run, config = read(given)
        trainer = make_trainer(run, config)
        if run.dry_run:
            from .dry_run import report

            print(report(trainer))
            return
        train(trainer, run)
    except ArgumentError as error:
        sys.exit(f"mudarrib-sft: {error}")


def read(given: list[str]) -> tuple[RunArguments, SFTConfig]:
    """The arguments from flags and, with `--config file.yaml`, from a file; a flag wins over the file."""
    if "--config" in given:
        at = given.index("--config")
        path = given[at + 1] if at + 1 < len(given) else ""
        given = [*flags(read_yaml(path)), *given[:at], *given[at + 2 :]]
    elif given and given[0].endswith((".yaml", ".yml")):
        given = [*flags(read_yaml(given[0])), *given[1:]]
    run, config = parse_args(RunArguments, SFTConfig, args=given, description=__doc__)
    for name in ("model_name_or_path", "dataset_name"):
        if getattr(run, name) is None:
            raise ArgumentError(name, None, f"give --{name}, or {name}: in the YAML file")
    return run, config


def read_yaml(path: str) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        ArgumentError: there is no such file, or it holds something else.
    """
    import yaml  # type: ignore[import-untyped,unused-ignore]  # its types are a package of their own

    if not Path(path).is_file():
        raise ArgumentError("--config", path, "no such file")
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ArgumentError("--config", path, f"not YAML: {error}") from error
    if not isinstance(values, dict):
        raise ArgumentError("--config", path, "it must hold 'name: value' lines")
    return values


def flags(values: dict[str, Any]) -> list[str]:
    """The same as flags; None means the default."""
    words: list[str] = []
    for name, value in values.items():
        if value is None:
            continue
        words.append(f"--{name}")
        if isinstance(value, dict):
            words.append(json.dumps(value))
        elif isinstance(value, list) and name in RunArguments.__dataclass_fields__:  # there, lists have commas
            words.append(",".join(map(plain, value)))
        else:
            words += [plain(item) for item in (value if isinstance(value, list) else [value])]
    return words


def plain(value: object) -> str:
    """A value as it is typed on a command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def load(name: str, split: str, run: RunArguments) -> Any:
    """A data set from a file, a folder or the hub.

    Raises:
        ArgumentError: nothing is there, or it can't be read.
    """
    try:
        return _load(name, split, run)
    except Exception as error:  # the loaders of datasets raise whatever their parsers do
        reason = error.__cause__ or error
        raise ArgumentError("dataset_name", name, f"it can't be loaded: {type(reason).__name__}: {reason}") from error


def _load(name: str, split: str, run: RunArguments) -> Any:
    import datasets

    path = Path(name)
    if path.suffix in LOADERS:
        if not path.is_file():
            raise FileNotFoundError("no such file")
        kind = LOADERS[path.suffix]
        return datasets.load_dataset(kind, data_files=name, split="train", streaming=run.dataset_streaming)
    if (path / "dataset_info.json").is_file() or (path / "dataset_dict.json").is_file():
        loaded = datasets.load_from_disk(name)
        return loaded[split] if isinstance(loaded, datasets.DatasetDict) else loaded
    return datasets.load_dataset(name, run.dataset_config, split=split, streaming=run.dataset_streaming)


def make_trainer(run: RunArguments, config: SFTConfig) -> SFTTrainer:
    """The trainer that the arguments describe."""
    from .trainer import SFTTrainer

    options = config.model_init_kwargs if isinstance(config.model_init_kwargs, dict) else {}
    chosen = {"revision": run.model_revision, "attn_implementation": run.attn_implementation, "dtype": run.dtype}
    config.model_init_kwargs = {**options, **{name: value for name, value in chosen.items() if value is not None}}
    evaluates = run.dataset_test_name is not None or config.eval_strategy != "no"
    data = str(run.dataset_name)
    check_splits(run, evaluates)
    quantized, adapted = quantization(run), adapters(run)
    return SFTTrainer(
        model=run.model_name_or_path,
        args=config,
        train_dataset=load(data, run.dataset_train_split, run),
        eval_dataset=load(run.dataset_test_name or data, run.dataset_test_split, run) if evaluates else None,
        quantization_config=quantized,
        peft_config=adapted,
    )


def check_splits(run: RunArguments, evaluates: bool) -> None:
    """Refuse splits of a file, which has none: the model would be evaluated on what it was trained on."""
    if Path(str(run.dataset_name)).suffix not in LOADERS:
        return
    if evaluates and run.dataset_test_name is None:
        raise ArgumentError(
            "dataset_test_name", None, f"{run.dataset_name} is all for training; give data to evaluate on"
        )
    if run.dataset_train_split != "train":
        raise ArgumentError("dataset_train_split", run.dataset_train_split, f"{run.dataset_name} has no splits")


def adapters(run: RunArguments) -> Any:
    """The config of the adapters, or None."""
    if not run.use_peft:
        return None
    from .lora import import_peft

    targets = run.lora_target_modules
    return import_peft().LoraConfig(
        task_type="CAUSAL_LM",
        r=run.lora_r,
        lora_alpha=run.lora_alpha,
        lora_dropout=run.lora_dropout,
        target_modules=targets if targets == "all-linear" else targets.split(","),
        modules_to_save=run.lora_modules_to_save.split(",") if run.lora_modules_to_save else None,
        use_rslora=run.use_rslora,
        use_dora=run.use_dora,
    )


def quantization(run: RunArguments) -> Any:
    """How to quantize the base model, or None.

    Raises:
        ArgumentError: 4 and 8 bits at once.
    """
    if run.load_in_4bit and run.load_in_8bit:
        raise ArgumentError("load_in_8bit", True, "choose one of load_in_4bit and load_in_8bit")
    if not (run.load_in_4bit or run.load_in_8bit):
        return None
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=run.load_in_4bit,
        load_in_8bit=run.load_in_8bit,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
    )


def train(trainer: SFTTrainer, run: RunArguments) -> None:
    """Train, and write the result into the output folder."""
    trainer.train(resume_from_checkpoint=trainer.args.resume_from_checkpoint)
    trainer.save_model()
    if run.merge_adapters:
        trainer.save_merged(str(Path(str(trainer.args.output_dir)) / "merged"))
    if trainer.args.push_to_hub:
        trainer.push_to_hub()
