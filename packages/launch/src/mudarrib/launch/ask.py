"""Asks on a terminal for what nobody but the user can know; Enter takes what the guide's configs have."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from .config import Config
from .phrases import phrase
from .typed import typed

QUESTIONS: dict[str, tuple[str, ...]] = {
    "ddp": ("num_machines", "num_processes", "main_process_ip", "main_process_port", "machine_rank"),
    "fsdp": ("num_processes", "fsdp_transformer_layer_cls_to_wrap"),
    "fsdp2": ("num_processes", "fsdp_transformer_layer_cls_to_wrap"),
    "deepspeed": ("num_processes", "deepspeed_config_file"),
    "deepspeed-plugin": ("num_processes",),
    "cpu": ("num_processes",),
}
ONLY_OF_SEVERAL = ("main_process_ip", "machine_rank")


def on_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def answers(
    kind: str, usual: Config, given: Mapping[str, Any], ask: Callable[[str], str] | None = None
) -> dict[str, Any]:
    """What the user says to the questions of a kind.

    Args:
        kind: Of the config.
        usual: The config as it would be without answers.
        given: What was given as KEY=VALUE, which is not asked for.
        ask: Shows a question and returns the answer; by default on the terminal.
    """
    said: dict[str, Any] = {}
    for key in QUESTIONS.get(kind, ()):
        machines = {**given, **said}.get("num_machines", usual.get("num_machines"))
        if key in given or (key in ONLY_OF_SEVERAL and machines == 1):
            continue
        now = usual.get(key, usual.section("fsdp_config").get(key, usual.section("deepspeed_config").get(key)))
        text = (ask or on_terminal)(f"{meaning(key)} [{now}]: ").strip()
        if text:
            said[key] = typed(key, text)
    return said


def meaning(key: str) -> str:
    """What a key is, for somebody who has not read of it."""
    return {
        "num_machines": phrase("How many machines"),
        "num_processes": phrase("How many processes over all machines, one for each GPU"),
        "main_process_ip": phrase("Address of the first machine"),
        "main_process_port": phrase("Its port at which all meet"),
        "machine_rank": phrase("Number of this machine, the first is 0"),
        "fsdp_transformer_layer_cls_to_wrap": phrase("Class of the model's layers"),
        "deepspeed_config_file": phrase("DeepSpeed's JSON file"),
    }[key]


def on_terminal(question: str) -> str:
    """Ask on standard error, so that standard output stays the config's."""
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline()
