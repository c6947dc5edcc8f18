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


SLOW = """
import sys, time
from tiny import Regressor, Rows, arguments
from mudarrib.core_loop import Trainer
class SlowDisk(Trainer):
    def save_model(self, output_dir=None):
        time.sleep(3)
        super().save_model(output_dir)
args = arguments(sys.argv[1], disable_tqdm=False, save_strategy="steps", save_steps=4)
SlowDisk(model=Regressor(), args=args, train_dataset=Rows()).train()
"""


def command(folder, script=SCRIPT):
    return {
        "args": [sys.executable, "-c", script, str(folder)],
        "env": {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "TERM": "xterm"},
    }


def on_a_terminal(**command):
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, 160))  # a new one has no size, and a bar no room
    with subprocess.Popen(**command, stdin=its, stdout=its, stderr=its) as process:
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
    assert process.returncode == 0, seen.decode()
    return seen.decode()


def test_a_terminal_sees_bars_of_training_and_evaluation(tmp_path):
    text = on_a_terminal(**command(tmp_path))
    assert "train: 100%" in text and "4/4" in text and "step/s" in text and "evaluate:" in text
    assert "loss=" in text and "lr=" in text
    assert "Saving" not in text, "what is done at once is not shown"


def test_a_terminal_sees_what_takes_long(tmp_path):
    assert "Saving checkpoint-4: 00:02" in on_a_terminal(**command(tmp_path, SLOW))


def test_a_pipe_sees_nothing_of_what_takes_long(tmp_path):
    done = subprocess.run(**command(tmp_path, SLOW), capture_output=True, text=True)
    assert done.returncode == 0 and "Saving" not in done.stdout + done.stderr


def test_a_pipe_sees_lines_alone(tmp_path):
    done = subprocess.run(**command(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "\r" not in done.stdout + done.stderr and "train:" not in done.stderr
    assert done.stdout.count("learning_rate") >= 4
