"""The config against the machine that launches, which only `run` knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..config import Config
from ..phrases import phrase
from .base import rule

Findings = Iterator[dict[str, Any]]


def processes(config: Config) -> int:
    """How many processes are asked for: a flag wins over the config."""
    flags = config.context.here.flags if config.context.here else ()
    for number, flag in enumerate(flags):
        name, equals, value = flag.partition("=")
        if name == "--num_processes":
            value = value if equals else (*flags[number + 1 :], "")[0]
            return int(value) if value.isdigit() else 1
    return config.number("num_processes") or 1


@rule("H001")
def deepspeed_is_installed(config: Config) -> Findings:
    """DeepSpeed is installed where it is launched."""
    here = config.context.here
    if here is not None and config.kind == "DEEPSPEED" and "deepspeed" not in here.packages:
        yield {
            "key": "distributed_type",
            "message": phrase("DeepSpeed is not installed"),
            "consequence": phrase("accelerate launch stops with a traceback."),
            "fix": phrase("pip install deepspeed"),
            "stops": False,
        }


@rule("H002")
def there_are_accelerators(config: Config) -> Findings:
    """Processes on accelerators need some."""
    here, several = config.context.here, config.kind in ("MULTI_GPU", "FSDP", "DEEPSPEED") and processes(config) > 1
    if here is None or here.accelerators is not False or not several:
        return
    if config.get("use_cpu") is not True and "--cpu" not in here.flags:
        yield {
            "key": "num_processes",
            "message": phrase("this machine seems to have no GPU"),
            "consequence": phrase(
                "{processes} processes would each train alone, and write the same folder.", processes=processes(config)
            ),
            "fix": phrase("launch where the GPUs are, or set use_cpu: true"),
            "stops": False,
        }


@rule("H003")
def flag_for_the_cpu(config: Config) -> Findings:
    """The flag --cpu starts one process, whatever the config says."""
    here = config.context.here
    if here is not None and "--cpu" in here.flags and processes(config) > 1:
        yield {
            "key": "num_processes",
            "message": phrase("--cpu with {processes} processes", processes=processes(config)),
            "consequence": phrase("one plain process starts, without a word about the others."),
            "fix": phrase("give --num_processes=1, or instead of --cpu use_cpu: true with distributed_type: MULTI_GPU"),
        }
