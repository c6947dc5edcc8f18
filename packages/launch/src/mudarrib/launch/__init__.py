"""Accelerate configs: made, checked, explained and run. Plain Python and PyYAML."""

from ._version import __version__
from .config import Config, dump, parse, read, write
from .errors import ConfigError
from .explain import explain
from .new import new
from .rules import Finding, check

__all__ = [
    "Config",
    "ConfigError",
    "Finding",
    "__version__",
    "check",
    "dump",
    "explain",
    "new",
    "parse",
    "read",
    "write",
]
