"""The cheapest way to train a model on given hardware: which setups fit, which do not and why, and the config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .config import Config
from .errors import ConfigError
from .kinds import new
from .memory import Memory, Setup, Work, memory_of
from .phrases import phrase
from .shapes import ModelShape
from .states import optimizer_named

GIB = 2**30
# CUDA's context, NCCL's buffers and the allocator's gaps: fixed, and a share of the GPU's memory.
CONTEXT, GAPS = 1.5 * GIB, 0.05
# Of whatever is counted.
MOST = 10**12


@dataclass(frozen=True)
class Hardware:
    """What there is to train on.

    Attributes:
        gpus: GPUs of each machine.
        gpu_memory: Bytes of each GPU.
        nodes: Machines.
        cpu_memory: Bytes of each machine's own memory; None where it is not known.
        reserve: Bytes of each GPU that training cannot use; by default 1.5 GiB and 5 %.
    """

    gpus: int
    gpu_memory: int
    nodes: int = 1
    cpu_memory: int | None = None
    reserve: int | None = None

    @property
    def world(self) -> int:
        """Processes, one a GPU."""
        return self.gpus * self.nodes

    @property
    def usable(self) -> int:
        """Bytes of each GPU that training can use."""
        kept = self.reserve if self.reserve is not None else round(CONTEXT + GAPS * self.gpu_memory)
        return self.gpu_memory - kept


@dataclass(frozen=True)
class Choice:
    """A setup, and whether it fits.

    Attributes:
        setup: How training is laid over the processes.
        memory: Bytes of each process; None where the setup cannot work.
        why_not: Why it does not fit; empty where it does.
        open: Nothing is known of its memory yet; simulation may tell.
    """

    setup: Setup
    memory: Memory | None
    why_not: str = ""
    open: bool = False

    @property
    def fits(self) -> bool:
        """Whether it can be used."""
        return not self.why_not


@dataclass(frozen=True)
class Plan:
    """All setups, the cheapest first.

    Attributes:
        shape: The model.
        work: What is trained, and how.
        hardware: On what.
        choices: Each setup with its memory.
    """

    shape: ModelShape
    work: Work
    hardware: Hardware
    choices: tuple[Choice, ...]

    @property
    def chosen(self) -> Choice | None:
        """The cheapest that fits."""
        return next((choice for choice in self.choices if choice.fits), None)


def make_plan(shape: ModelShape, work: Work, hardware: Hardware, fsdp_version: int = 2) -> Plan:
    """Weigh every setup, the cheapest first.

    Cheap is what moves least: nothing waits in the CPU's memory, then nothing is computed twice, then little is sent
    between the GPUs, then little across machines.

    Args:
        shape: The model; see `read_model`.
        work: What is trained, and how.
        hardware: On what.
        fsdp_version: 1 or 2.

    Raises:
        ConfigError: a number or a name cannot work.
    """
    verify(shape, work, hardware)
    choices = [weigh(setup, shape, work, hardware) for setup in setups(hardware, fsdp_version)]
    return Plan(shape, work, hardware, tuple(choices))


def empty_plan(shape: ModelShape, work: Work, hardware: Hardware, fsdp_version: int = 2) -> Plan:
    """The setups of `make_plan` for a model without a formula, with nothing known of their memory yet.

    Raises:
        ConfigError: as `make_plan`.
    """
    verify(shape, work, hardware)
    unknown = phrase("no formula for this architecture, and not simulated")
    choices = [Choice(setup, None, unknown, open=True) for setup in setups(hardware, fsdp_version)]
    return Plan(shape, work, hardware, tuple(choices))


def verify(shape: ModelShape, work: Work, hardware: Hardware) -> None:
    """Refuse what no setup can do.

    Raises:
        ConfigError: names the argument, the value and the fix.
    """
    optimizer_named(work.optimizer)
    numbers = {
        "--gpus": hardware.gpus, "--nodes": hardware.nodes, "--batch": work.batch, "--seq-len": work.seq_len,
        "--rank": work.rank, "--accumulation": work.accumulation,
    }  # fmt: skip
    for name, value in numbers.items():
        if value < 1:
            raise ConfigError(name, value, phrase("give a whole number above 0"))
        if value > MOST:
            raise ConfigError(name, value, phrase("give a whole number up to {most}", most=MOST))
    if hardware.usable <= 0:
        raise ConfigError(
            "--gpu-memory", hardware.gpu_memory, phrase("the reserve leaves nothing; give the GPU's size, as 80GB")
        )
    if shape.max_positions is not None and work.seq_len > shape.max_positions:
        raise ConfigError(
            "--seq-len", work.seq_len, phrase("the model takes at most {most} tokens", most=shape.max_positions)
        )
    if work.dtype != "float32" and work.mixed_precision != "no":
        raise ConfigError(
            "--mixed-precision",
            work.mixed_precision,
            phrase("with weights in {dtype} give no, or --dtype float32", dtype=work.dtype),
        )


def setups(hardware: Hardware, fsdp_version: int) -> list[Setup]:
    """Every setup for some hardware, the cheapest first."""
    world = hardware.world
    if world == 1:
        kinds = [("one-gpu", "ddp", "nothing", 1)]
    else:
        engine = f"fsdp{fsdp_version}"
        kinds = [
            ("ddp", "ddp", "nothing", 1),
            (f"{engine}-grad-op", engine, "gradients", world),
            ("zero-1", "deepspeed", "states", world),
            ("zero-2", "deepspeed", "gradients", world),
        ]
        if hardware.nodes > 1 and hardware.gpus > 1:
            kinds.append(("fsdp1-hybrid", "fsdp1", "all", hardware.gpus))
        kinds += [(engine, engine, "all", world), ("zero-3", "deepspeed", "all", world)]
    found = [Setup(*kind, world) for kind in kinds]
    found += [replace(setup, name=f"{setup.name}+checkpointing", checkpointing=True) for setup in found]
    for name, engine, shards, offload in (
        ("zero-2+offload", "deepspeed", "gradients", "states"),
        (f"fsdp{fsdp_version}+offload", f"fsdp{fsdp_version}", "all", "all"),
        ("zero-3+offload", "deepspeed", "all", "all"),
    ):
        found.append(Setup(f"{name}+checkpointing", engine, shards, world, world, True, offload))
    return found


def weigh(setup: Setup, shape: ModelShape, work: Work, hardware: Hardware) -> Choice:
    """A setup with its memory and, if it does not fit, why."""
    refused = refusal(setup, work)
    if refused:
        return Choice(setup, None, refused)
    needed = memory_of(shape, work, setup)
    return Choice(setup, needed, shortage(needed, hardware))


def refusal(setup: Setup, work: Work) -> str:
    """Why a setup cannot work with the optimizer; empty if it can."""
    optimizer = optimizer_named(work.optimizer)
    if setup.engine == "deepspeed" and (optimizer.whole_matrices or optimizer.in_backward):
        return phrase("ZeRO flattens the parameters, and {name} needs them as they are", name=work.optimizer)
    if setup.offload != "nothing" and optimizer.whole_matrices:
        return phrase("{name} cannot step in the CPU's memory", name=work.optimizer)
    if setup.offload != "nothing" and optimizer.in_backward:
        return phrase("{name} steps inside backward, on the GPU", name=work.optimizer)
    if setup.engine == "fsdp1" and (optimizer.whole_matrices or optimizer.in_backward):
        return phrase("FSDP 1 flattens the parameters, and {name} needs them as they are", name=work.optimizer)
    return ""


def shortage(needed: Memory, hardware: Hardware) -> str:
    """What is short, and what takes most; empty if it fits."""
    if needed.total > hardware.usable:
        name, size = max(needed.parts.items(), key=lambda part: part[1])
        over = in_gib(needed.total - hardware.usable)
        most = phrase(name)
        return phrase("{over} too much on each GPU; {most} take most, {size}", over=over, most=most, size=in_gib(size))
    host = needed.host * hardware.gpus
    if hardware.cpu_memory is not None and host > hardware.cpu_memory:
        there = in_gib(hardware.cpu_memory)
        return phrase("{needed} of the machine's own memory, which has {there}", needed=in_gib(host), there=there)
    return ""


def in_gib(size: float) -> str:
    """Bytes for people."""
    return f"{size / GIB:,.1f} GiB" if size >= GIB / 10 else f"{size / 2**20:,.1f} MiB"


def largest_batch(found: Plan, choice: Choice) -> int:
    """The greatest batch for each process with which a setup still fits."""

    def fits(batch: int) -> bool:
        work = replace(found.work, batch=batch)
        return weigh(choice.setup, found.shape, work, found.hardware).fits

    low, high = found.work.batch, 2 * found.work.batch
    while fits(high) and high < 1 << 20:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def config_of(found: Plan, choice: Choice, /, **changes: Any) -> Config:
    """The config of a setup, made as `new` makes it.

    Args:
        found: The plan.
        choice: One of its choices.
        **changes: Other keys and values, as `new` takes them.

    Raises:
        ConfigError: a key that the config does not have.
    """
    setup, work, hardware = choice.setup, found.work, found.hardware
    many = hardware.nodes > 1
    common: dict[str, Any] = {
        "num_machines": hardware.nodes, "num_processes": hardware.world, "mixed_precision": work.mixed_precision,
    }  # fmt: skip
    kind, own = ENGINES[setup.engine](setup, work, found.shape)
    if many and kind != "ddp":
        base = new("ddp").values
        common |= {key: base[key] for key in ("main_process_ip", "main_process_port")}
    config = new(kind, **{**common, **own, **changes})
    if not many:
        for key in ("main_process_ip", "main_process_port"):
            if key not in changes:
                config.values.pop(key, None)
    return config


def _ddp(setup: Setup, work: Work, shape: ModelShape) -> tuple[str, dict[str, Any]]:
    return "ddp", {"distributed_type": "NO"} if setup.world == 1 else {}


def _fsdp(setup: Setup, work: Work, shape: ModelShape) -> tuple[str, dict[str, Any]]:
    own: dict[str, Any] = {
        "fsdp_transformer_layer_cls_to_wrap": shape.layer_classes,
        "fsdp_activation_checkpointing": setup.checkpointing,
        "fsdp_offload_params": setup.offload == "all",
    }
    if setup.engine == "fsdp2":
        return "fsdp2", {**own, "fsdp_reshard_after_forward": setup.shards == "all"}
    strategy = "SHARD_GRAD_OP" if setup.shards == "gradients" else "FULL_SHARD"
    if setup.processes < setup.world:
        strategy = "HYBRID_SHARD"
    return "fsdp", {**own, "fsdp_sharding_strategy": strategy}


def _deepspeed(setup: Setup, work: Work, shape: ModelShape) -> tuple[str, dict[str, Any]]:
    stage = {"states": 1, "gradients": 2, "all": 3}[setup.shards]
    return "deepspeed-plugin", {
        "zero_stage": stage,
        "zero3_init_flag": stage == 3,
        "offload_optimizer_device": "none" if setup.offload == "nothing" else "cpu",
        "offload_param_device": "cpu" if setup.offload == "all" else "none",
        "gradient_accumulation_steps": work.accumulation,
        "gradient_clipping": 1.0,
    }


ENGINES: dict[str, Callable[[Setup, Work, ModelShape], tuple[str, dict[str, Any]]]] = {
    "ddp": _ddp,
    "fsdp1": _fsdp,
    "fsdp2": _fsdp,
    "deepspeed": _deepspeed,
}
