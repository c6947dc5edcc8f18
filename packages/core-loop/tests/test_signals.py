"""SIGTERM and SIGINT, in processes of their own."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import sys, time
sys.path.insert(0, {tests!r})
from tiny import Regressor, Rows, arguments
from mudarrib.core_loop import Trainer, TrainerCallback

class Slow(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        print("step", state.global_step, flush=True)
        time.sleep({pause})

Trainer(model=Regressor(), args=arguments({folder!r}, max_steps=400, save_strategy="steps", save_steps=1000),
        train_dataset=Rows(), callbacks=Slow).train()
print("after train", flush=True)
"""


def start(tmp_path, pause):
    code = SCRIPT.format(tests=str(Path(__file__).parent), folder=str(tmp_path), pause=pause)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while "step 2" not in process.stdout.readline():
        assert process.poll() is None, process.stderr.read()
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_finishes_the_step_saves_and_exits_with_its_code(tmp_path, number):
    process = start(tmp_path, pause=0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert "after train" not in out
    (saved,) = tmp_path.glob("checkpoint-*")
    assert (saved / "manifest.json").is_file()
    assert number.name in err


def test_a_second_signal_stops_at_once(tmp_path):
    process = start(tmp_path, pause=3)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert time.monotonic() - began < 2
