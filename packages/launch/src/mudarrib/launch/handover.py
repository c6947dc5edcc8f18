"""Hands a config to `accelerate launch`, and tells a failure once: its first cause, without the launcher's own."""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import IO

from .errors import ConfigError
from .phrases import later, phrase

BEGINS = "Traceback (most recent call last):"
BETWEEN = ("During handling of the above", "The above exception was", BEGINS)
LAUNCHER = ("ChildFailedError", "CalledProcessError")
# What torch's launcher logs of a process that failed, or that it ends for that.
LOGGED = re.compile(r"^[EWI]\d{4} .*torch/distributed/elastic/\S+\] (failed \(exitcode|Sending process)")
SIGNALLED, INTERRUPTED = 128, 130
COMMA = later(", ")
OF_RANK = re.compile(r"^(\[rank(\d+)\]: ?)?(.*)$", re.DOTALL)


def run(config: str, words: Sequence[str]) -> int:
    """Launch a script; returns its exit code: of several processes, that of the first that failed.

    As in a shell it is 128 and the signal's number where a signal ended it, 130 after Ctrl-C.

    Args:
        config: Path of the config.
        words: Flags of `accelerate launch`, the script, and the script's own flags.

    Raises:
        ConfigError: accelerate is not installed.
    """
    if importlib.util.find_spec("accelerate") is None:
        fix = phrase('install what it needs: pip install "mudarrib-launch[run]"')
        raise ConfigError("run", "accelerate", fix)
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", config, *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace")
    teller = Teller(sys.stderr)
    asked_to_end: list[int] = []

    def pass_on(number: int, frame: object) -> None:
        asked_to_end.append(number)
        process.send_signal(number)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        code = follow(process, teller)
    finally:
        signal.signal(signal.SIGTERM, before)
    if asked_to_end:
        return SIGNALLED + asked_to_end[0]
    return teller.sum_up(code) if code and code != INTERRUPTED else code


def follow(process: subprocess.Popen[str], teller: Teller) -> int:
    """Tell what a process says until it ends; returns its exit code. Ctrl-C ends it, a second one at once."""
    assert process.stderr is not None
    try:
        teller.tell(process.stderr)
        return process.wait()
    except KeyboardInterrupt:
        # The processes got it, too: let them end in their own way.
        pass
    try:
        teller.tell(process.stderr)
        process.wait()
    except KeyboardInterrupt:
        process.kill()
        process.wait()
    return INTERRUPTED


class Teller:
    """Passes on what processes say, each traceback once, and leaves out what the launcher says of their end.

    Args:
        out: Where to.
    """

    def __init__(self, out: IO[str]) -> None:
        self.out = out
        self.open: dict[str, list[str]] = {}
        self.told: list[str] = []
        self.repeats: int = 0
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
        elif LOGGED.match(text):
            return
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

    def sum_up(self, code: int) -> int:
        """Say at the end which process failed first, where the launcher knows it; returns its exit code."""
        text = "".join(self.summary or [])
        cause = text[text.find("Root Cause") :] if "Root Cause" in text else ""
        rank = re.search(r"rank\s+: (\d+)", cause)
        status = re.search(r"exitcode\s+: (-?\d+)", cause) or re.search(r"non-zero exit status (-?\d+)", text)
        killed = re.search(r"died with <Signals\.\w+: (\d+)>", text)
        code = -int(killed[1]) if killed else int(status[1]) if status else code
        who = phrase("process {rank} failed first", rank=rank[1]) if rank else phrase("the script failed")
        how = phrase("exit code {code}", code=code) if code >= 0 else phrase("ended by {signal}", signal=name_of(-code))
        self._write(f"mudarrib-launch: {who}{phrase(COMMA)}{how}.\n")
        if -code == signal.SIGKILL:
            self._write(phrase("Often the machine had no memory left: dmesg tells.") + "\n")
        if self.repeats == 1:
            self._write(phrase("Another process failed in the same way.") + "\n")
        elif self.repeats:
            self._write(phrase("{count} other processes failed in the same way.", count=self.repeats) + "\n")
        return code if code >= 0 else SIGNALLED - code


def name_of(number: int) -> str:
    """A signal's name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
