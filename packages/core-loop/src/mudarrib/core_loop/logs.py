"""Log levels by process: INFO on the main one, WARNING on the others, unless the arguments say otherwise."""

from __future__ import annotations

import logging
import sys
from logging import Logger as Logger
from typing import Any

ROOT = "mudarrib"


def get_logger(name: str) -> Logger:
    """The logger of a module, under the package's."""
    return logging.getLogger(name)


class ToCurrentStderr(logging.StreamHandler[Any]):
    """Writes to whatever `sys.stderr` is now, which notebooks and tests replace."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr


def configure_logging(args: Any) -> None:
    """Set the level of this process; adds a handler where the program has none of its own."""
    logger = logging.getLogger(ROOT)
    logger.setLevel(args.get_process_log_level())
    if not logger.hasHandlers():
        handler = ToCurrentStderr()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
