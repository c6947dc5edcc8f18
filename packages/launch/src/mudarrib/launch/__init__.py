"""Accelerate configs: made, checked, explained and run; and plans for hardware. Plain Python and PyYAML."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .config import Config, dump, parse, read, write
    from .errors import ConfigError
    from .kinds import new
    from .memory import Memory, Setup, Work, memory_of
    from .model_config import read_model
    from .plan import Choice, Hardware, Plan, config_of, make_plan
    from .rules import Finding, check
    from .shapes import ModelShape
    from .wording import explain

__all__ = [
    "Choice",
    "Config",
    "ConfigError",
    "Finding",
    "Hardware",
    "Memory",
    "ModelShape",
    "Plan",
    "Setup",
    "Work",
    "__version__",
    "check",
    "config_of",
    "dump",
    "explain",
    "make_plan",
    "memory_of",
    "new",
    "parse",
    "read",
    "read_model",
    "write",
]
# Loaded when asked for, so that each command answers at once.
LATER = {
    **dict.fromkeys(("Config", "dump", "parse", "read", "write"), "config"),
    **dict.fromkeys(("Finding", "check"), "rules"),
    "ConfigError": "errors",
    "explain": "wording",
    "new": "kinds",
    **dict.fromkeys(("Memory", "Setup", "Work", "memory_of"), "memory"),
    **dict.fromkeys(("Choice", "Hardware", "Plan", "config_of", "make_plan"), "plan"),
    "ModelShape": "shapes",
    "read_model": "model_config",
}


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{LATER[name]}", __name__), name)
