"""`mudarrib-launch plan`: what fits on which hardware, and the config for it."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .errors import ConfigError
from .phrases import phrase

OK, WRONG = 0, 1
UNITS = {"": 1 << 30, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
MOST_BYTES = 1 << 60
QUIET_S = 2.0


def say(*lines: str) -> None:
    """Print for people: every sentence goes through here."""
    for line in lines:
        print(line)


def plan(options: argparse.Namespace, changes: dict[str, Any]) -> int:
    """Run the command; 0 if a setup fits, 1 if none does.

    Raises:
        ConfigError: a flag cannot work.
    """
    from .memory import Work
    from .model_config import read_values
    from .plan import Hardware

    sizes = {name: size_of(name, getattr(options, name[2:].replace("-", "_"))) for name in SIZES}
    hardware = Hardware(
        options.gpus, sizes["--gpu-memory"] or 0, options.nodes, sizes["--cpu-memory"], sizes["--reserve"]
    )
    precision = options.mixed_precision or ("bf16" if options.dtype == "float32" else "no")
    work = Work(
        batch=options.batch, seq_len=options.seq_len or 0, optimizer=options.optimizer, rank=options.rank,
        dtype=options.dtype, mixed_precision=precision, accumulation=options.accumulation,
        eager_attention=options.eager_attention,
    )  # fmt: skip
    if options.seq_len is not None and options.seq_len < 1:
        raise ConfigError("--seq-len", options.seq_len, phrase("give a whole number above 0"))
    return answer(options, read_values(options.model), work, hardware, changes)


SIZES = ("--gpu-memory", "--cpu-memory", "--reserve")


def answer(
    options: argparse.Namespace, values: dict[str, Any], work: Any, hardware: Any, changes: dict[str, Any]
) -> int:
    """Weigh the setups, say what was found, and write what was asked for."""
    from .families import FAMILIES
    from .model_config import shape_of
    from .plan import empty_plan, make_plan

    known = values["model_type"] in FAMILIES or not options.simulate
    shape = shape_of(values) if known else simulation().outline(values)
    if not work.seq_len:
        work = replace(work, seq_len=min(shape.max_positions or 512, 2048))
    found = (make_plan if known else empty_plan)(shape, work, hardware, options.fsdp_version)
    if options.simulate:
        found = simulated(found, values, Status() if sys.stderr.isatty() else None)
    if options.json:
        print(json.dumps(as_json(found), indent=2))
    elif options.output != "-":
        say(*described(found), "", *table(found), "", *drawn(found), "", *conclusion(found))
    if options.picture:
        from .picture import draw

        draw(found.choices, hardware.usable, options.picture)
    if found.chosen is None:
        return WRONG
    if options.output or changes:
        written(options, found, changes)
    return OK


def size_of(name: str, text: str | None) -> int | None:
    """Bytes from a text such as 80GB, 24GiB or 40960MB; a bare number is GiB.

    Raises:
        ConfigError: it is no size.
    """
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?\s*", text.lower())
    size = float(match[1]) * UNITS[match[2]] if match else 0
    if match is None or size > MOST_BYTES or (size == 0 and name != "--reserve"):
        raise ConfigError(name, text, phrase("give a size such as 80GB or 40960MB"))
    return round(size)


def described(found: Any) -> list[str]:
    """What is trained, and on what."""
    from .plan import in_gib

    shape, work, hardware = found.shape, found.work, found.hardware
    layers = ", ".join(f"{block.number} {block.class_name}" for block in shape.blocks)
    rank = phrase(" of rank {rank}", rank=work.rank) if work.optimizer.startswith(("galore", "apollo_adamw")) else ""
    computing = "" if work.mixed_precision == "no" else phrase(", computed in {name}", name=work.mixed_precision)
    machines = phrase("{number} machines of ", number=hardware.nodes) if hardware.nodes > 1 else ""
    return [
        f"{shape.architecture}: "
        + phrase("{count} billion parameters, {layers}", count=f"{shape.count / 1e9:,.2f}", layers=layers),
        f"{work.optimizer}{rank}"
        + phrase(", weights in {dtype}{computing}; ", dtype=work.dtype, computing=computing)
        + phrase("{rows} x {tokens} tokens a GPU", rows=work.batch, tokens=work.seq_len),
        f"{machines}{hardware.gpus} x {in_gib(hardware.gpu_memory)}"
        + phrase(", of which {usable} can be used", usable=in_gib(hardware.usable)),
    ]


def table(found: Any) -> list[str]:
    """GiB of each part for each setup, the cheapest first."""
    from .memory import PARTS
    from .plan import GIB

    title, host = phrase("GiB on each GPU"), phrase("host")
    wide = max(9, len(host) + 2)
    names = max(len(title), *(len(choice.setup.name) for choice in found.choices))
    heads = [*map(phrase, PARTS), phrase("total")]
    lines = [f"{title:{names}}" + "".join(f"{head:>12}" for head in heads) + f"{host:>{wide}}"]
    for choice in found.choices:
        line = f"{choice.setup.name:{names}}"
        if choice.memory is not None:
            sizes = [*choice.memory.parts.values(), choice.memory.total]
            line += "".join(f"{size / GIB:12,.2f}" for size in sizes) + f"{choice.memory.host / GIB:{wide},.2f}"
        how = phrase(", simulated") if choice.memory is not None and choice.memory.moment == "simulated" else ""
        verdict = phrase("fits{how}", how=how) if choice.fits else phrase("no{how}: {why}", how=how, why=choice.why_not)
        lines.append(f"{line}  {verdict}")
    return lines


def drawn(found: Any) -> list[str]:
    """The bars, as text."""
    from .picture import bars

    return bars(found.choices, found.hardware.usable, encoding=sys.stdout.encoding)


def conclusion(found: Any) -> list[str]:
    """What to take, or what would help."""
    from .plan import in_gib, largest_batch

    choice = found.chosen
    if choice is None:
        return [
            phrase("Nothing fits."),
            *(f"{near.setup.name}: {near.why_not}." for near in least(found)),
            phrase(
                "Take more or larger GPUs, a shorter --seq-len, a smaller --batch, --dtype bfloat16, or an optimizer "
                "with fewer states (--optimizer adamw_8bit, galore_adamw_layerwise, adalomo)."
            ),
        ]
    setup, memory = choice.setup, choice.memory
    known = memory.moment != "simulated"
    room = phrase(", room for a batch of {batch}", batch=largest_batch(found, choice)) if known else ""
    said = {"name": setup.name, "size": in_gib(memory.total), "moment": phrase(memory.moment), "room": room}
    lines = [phrase("Take {name}: {size} on each GPU at its peak ({moment}){room}.", **said)]
    if memory.host:
        host = in_gib(memory.host * found.hardware.gpus)
        lines.append(phrase("{host} wait in each machine's own memory.", host=host))
    if setup.checkpointing and not setup.engine.startswith("fsdp"):
        lines.append(
            phrase("Train with gradient_checkpointing=True in TrainingArguments: the config has no key for it.")
        )
    if found.hardware.nodes > 1:
        lines.append(
            phrase("Set main_process_ip to the first machine's address, and machine_rank on each of the others.")
        )
    return [*lines, phrase("Write its config with -o FILE.")]


def least(found: Any) -> list[Any]:
    """The setups that come nearest to fitting: with all on the GPUs, and with what waits in the machine's memory."""
    kinds: list[list[Any]] = [[], []]
    for choice in found.choices:
        if choice.memory is not None:
            kinds[choice.memory.host > 0].append(choice)
    return [min(kind, key=lambda choice: (choice.memory.total, choice.memory.host)) for kind in kinds if kind]


def as_json(found: Any) -> dict[str, Any]:
    """The plan as plain data; sizes in bytes."""
    choices = [
        {
            "name": choice.setup.name, "fits": choice.fits, "why_not": choice.why_not,
            **({"bytes": choice.memory.parts, "total": choice.memory.total, "host": choice.memory.host,
                "moment": choice.memory.moment} if choice.memory else {}),
        }
        for choice in found.choices
    ]  # fmt: skip
    return {
        "architecture": found.shape.architecture, "parameters": found.shape.count, "usable": found.hardware.usable,
        "chosen": found.chosen.setup.name if found.chosen else None, "choices": choices,
    }  # fmt: skip


def written(options: argparse.Namespace, found: Any, changes: dict[str, Any]) -> None:
    """Write the config, or print it."""
    from .config import dump, target, write
    from .plan import config_of

    config = config_of(found, found.chosen, **changes)
    if options.output in (None, "-"):
        print(dump(config), end="")
        return
    path = target(options.output, options.yes)
    write(config, path)
    if not options.json:
        say(str(path))


def simulated(found: Any, values: dict[str, Any], status: Status | None) -> Any:
    """The plan with its choice measured; where that does not fit, the next one is."""
    from .plan import Choice, shortage

    simulate = simulation().simulate
    tell: Callable[[str], None] = status.tell if status else lambda text: None
    choices = list(found.choices)
    for at, choice in enumerate(choices):
        wanted = choice.fits or choice.open
        if not wanted or choice.setup.engine == "deepspeed" or choice.setup.offload != "nothing":
            continue
        tell(choice.setup.name)
        measured = simulate(values, found.work, choice.setup, tell)
        choices[at] = Choice(choice.setup, measured, shortage(measured, found.hardware))
        if choices[at].fits:
            break
    if status:
        status.clear()
    return replace(found, choices=tuple(choices))


def simulation() -> Any:
    """The module that simulates.

    Raises:
        ConfigError: what it needs is not installed.
    """
    try:
        from . import simulate
    except ImportError as error:
        fix = phrase('install what it needs: pip install "mudarrib-launch[plan]"')
        raise ConfigError("--simulate", error.name, fix) from error
    return simulate


class Status:
    """One line on a terminal that says what is going on, once that takes longer than two seconds."""

    def __init__(self) -> None:
        self.began: float = time.monotonic()

    def tell(self, text: str) -> None:
        """Show a text in place of the last one."""
        took = time.monotonic() - self.began
        if took > QUIET_S:
            print(f"\r\x1b[K{text} ({took:.0f} s)", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the line away."""
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
