"""Bars as they reach a terminal, a pipe, and a file."""

import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

SCRIPT = """
import sys
from tiny import Regressor, Rows, arguments
from mudarrib.core_loop import Trainer
args = arguments(sys.argv[1], disable_tqdm=False, logging_steps=1, eval_strategy="steps", eval_steps=2)
Trainer(model=Regressor(), args=args, train_dataset=Rows(), eval_dataset=Rows()).train()
"""


def command(folder):
    return {
        "args": [sys.executable, "-c", SCRIPT, str(folder)],
        "env": {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "TERM": "xterm"},
    }


def test_a_terminal_sees_bars_of_training_and_evaluation(tmp_path):
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, 160))  # a new one has no size, and a bar no room
    with subprocess.Popen(**command(tmp_path), stdin=its, stdout=its, stderr=its) as process:
        os.close(its)
        seen = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
    os.close(ours)
    text = seen.decode()
    assert process.returncode == 0, text
    assert "train: 100%" in text and "4/4" in text and "step/s" in text and "evaluate:" in text
    assert "loss=" in text and "lr=" in text


def test_a_pipe_sees_lines_alone(tmp_path):
    done = subprocess.run(**command(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "\r" not in done.stdout + done.stderr and "train:" not in done.stderr
    assert done.stdout.count("learning_rate") >= 4
