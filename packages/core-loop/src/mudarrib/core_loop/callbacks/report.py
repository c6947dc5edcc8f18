"""Reports to other tools: the peers' integrations unchanged, and our own pictures; imported only when asked for."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any

from ..errors import ArgumentError
from .base import TrainerCallback
from .jsonl import FILE

logger: logging.Logger = logging.getLogger(__name__)


class ReportCallback(TrainerCallback):
    """Draws the curves of the run into `output_dir` at its end, as PNG and as one HTML page."""

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            from ..report import write_report

            # The log on the disk also has the times and the memory.
            source = args.folder if (args.folder / FILE).is_file() else state.log_history
            try:
                write_report(source, args.output_dir, title=args.run_name or str(args.output_dir))
            except ArgumentError as error:  # a run is not lost for the want of a picture
                logger.warning("No pictures of this run: %s", error)


def report_callbacks(report_to: Any) -> list[Any]:
    """The callbacks that `report_to` names.

    Raises:
        ArgumentError: no such tool, or it is not installed.
    """
    names = [report_to] if isinstance(report_to, str) else list(report_to or [])
    if names in ([], ["none"]):
        return []
    if "report" in names and find_spec("matplotlib") is None:
        raise ArgumentError("report_to", "report", 'pictures need: pip install "mudarrib-core-loop[report]"')
    callbacks: list[Any] = [ReportCallback()] if "report" in names else []
    others = [name for name in names if name not in ("report", "none")]
    if others:
        from transformers.integrations.integration_utils import get_reporting_integration_callbacks

        try:
            callbacks += [cls() for cls in get_reporting_integration_callbacks(others)]
        except (ValueError, RuntimeError, ImportError) as error:
            raise ArgumentError("report_to", others, str(error)) from error
    return callbacks
