"""`mudarrib-report`: the curves of runs that are over, or under way."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..errors import ArgumentError


def main(arguments: Sequence[str] | None = None) -> int:
    """Write `report.png` and `report.html`; prints their paths."""
    parser = argparse.ArgumentParser(prog="mudarrib-report", description="Draw the curves of training runs.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="trainer_state.json, checkpoint, or output folder")
    parser.add_argument("-o", "--output", default=".", help="folder for report.png and report.html (default: here)")
    parser.add_argument("--title", default="Training", help="title of the page")
    options = parser.parse_args(arguments)
    from .write import write_report

    try:
        for path in write_report(options.runs, options.output, options.title):
            print(path)
    except ArgumentError as error:
        print(f"mudarrib-report: {error}", file=sys.stderr)
        return 2
    return 0
