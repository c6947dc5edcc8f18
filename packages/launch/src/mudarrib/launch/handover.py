"""Hands a config to `accelerate launch`, and tells a failure once: its first cause, without the launcher's own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import IO

from .phrases import phrase

BEGINS = "Traceback (most recent call last):"
BETWEEN = ("During handling of the above", "The above exception was", BEGINS)
LAUNCHER = ("ChildFailedError", "CalledProcessError")
OF_RANK = re.compile(r"^(\[rank(\d+)\]: ?)?(.*)$", re.DOTALL)


def run(config: str, words: Sequence[str]) -> int:
    """Launch a script; returns its exit code.

    Args:
        config: Path of the config.
        words: Flags of `accelerate launch`, the script, and the script's own flags.
    """
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", config, *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace")
    teller = Teller(sys.stderr)
    assert process.stderr is not None
    try:
        teller.tell(process.stderr)
    except KeyboardInterrupt:
        # The processes got it, too: let them end in their own way.
        teller.tell(process.stderr)
    code = process.wait()
    if code:
        teller.sum_up(code)
    return code


class Teller:
    """Passes on what processes say, each traceback once, and leaves out what the launcher says of their end.

    Args:
        out: Where to.
    """

    def __init__(self, out: IO[str]) -> None:
        self.out = out
        self.open: dict[str, list[str]] = {}
        self.told: list[str] = []
        self.repeats = 0
        self.summary: list[str] | None = None

    def tell(self, lines: Iterable[str]) -> None:
        """Pass on lines as they come."""
        for line in lines:
            self._take(line)
        for prefix in list(self.open):
            self._close(prefix)
        self.out.flush()

    def _take(self, line: str) -> None:
        if self.summary is not None:
            self.summary.append(line)
            return
        found = OF_RANK.match(line)
        prefix, text = (found[1] or "", found[3]) if found else ("", line)
        if prefix in self.open:
            self._continue(prefix, text)
        elif text.startswith(BEGINS):
            self.open[prefix] = [text]
        else:
            self._write(line)

    def _continue(self, prefix: str, text: str) -> None:
        block = self.open[prefix]
        block.append(text)
        inside = text.startswith((" ", "\t")) or not text.strip() or text.startswith(BETWEEN)
        if not inside and not any(line.startswith(BETWEEN) for line in block[-1:]):
            self._close(prefix)

    def _close(self, prefix: str) -> None:
        block = self.open.pop(prefix)
        if any(name in block[-1] for name in LAUNCHER):
            self.summary = [block[-1]]
            return
        said = "".join(block)
        if said in self.told:
            self.repeats += 1
            return
        self.told.append(said)
        self._write("".join(f"{prefix}{line}" for line in block))

    def _write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()

    def sum_up(self, code: int) -> None:
        """Say at the end which process failed first, where the launcher knows it."""
        text = "".join(self.summary or [])
        cause = text[text.find("Root Cause") :] if "Root Cause" in text else ""
        rank = re.search(r"rank\s+: (\d+)", cause)
        if rank:
            exit_code = re.search(r"exitcode\s+: (-?\d+)", cause)
            self._write(
                phrase("mudarrib-launch: process {rank} failed first, exit code {code}.", rank=rank[1],
                       code=exit_code[1] if exit_code else code) + "\n"
            )  # fmt: skip
        else:
            self._write(phrase("mudarrib-launch: the script ended with exit code {code}.", code=code) + "\n")
        if self.repeats:
            self._write(phrase("{count} other processes failed in the same way.", count=self.repeats) + "\n")
