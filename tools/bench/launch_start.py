#!/usr/bin/env python3
"""How soon `mudarrib-launch` answers: wall time and processor time of its commands, beside a plain Python with PyYAML.

Commands take turns, so that what else the machine does falls on all of them; `run` and `accelerate launch` start the
same script with the same config, one right after the other, and each goes first every other time.

    python tools/bench/launch_start.py --rounds 15
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
SCRIPT = "from pathlib import Path\nimport sys\nPath(sys.argv[1]).write_text('started')\n"
Took = tuple[float, float]


def took(command: list[str]) -> Took:
    """Seconds on the clock, and of the processor; a command that fails is no measurement."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def answers(folder: Path, ours: list[str], rounds: int) -> dict[str, list[Took]]:
    """Times of the commands that only answer."""
    model, config = folder / "config.json", str(folder / "c.yaml")
    model.write_text(json.dumps(GPT2))
    subprocess.run([*ours, "new", "ddp", "-o", config], check=True, stdout=subprocess.DEVNULL)
    commands = {
        "python, yaml": [sys.executable, "-c", "import yaml"],
        "--help": [*ours, "--help"],
        "new": [*ours, "new", "ddp", "-o", "-"],
        "check": [*ours, "check", config],
        "check, Arabic": [*ours, "--lang", "ar", "check", config],
        "plan": [*ours, "plan", "--model", str(model), "--gpus", "8", "--gpu-memory", "80GB"],
    }
    times: dict[str, list[Took]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            times[name].append(took(command))
    return times


def starts(folder: Path, ours: list[str], rounds: int) -> dict[str, list[Took]]:
    """Times of a script that is started by accelerate, and by us through accelerate."""
    script, config, sign = folder / "script.py", str(folder / "plain.yaml"), folder / "sign"
    script.write_text(SCRIPT)
    made = [*ours, "new", "cpu", "-o", config, "num_processes=1", "distributed_type=NO"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    tail = [str(script), str(sign)]
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", config, *tail]
    pair = {"accelerate launch": launch, "run": [*ours, "run", config, *tail]}
    times: dict[str, list[Took]] = {name: [] for name in pair}
    for number in range(rounds):
        for name in list(pair)[:: 1 if number % 2 else -1]:
            times[name].append(took(pair[name]))
            sign.unlink()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    ours = [str(Path(sys.executable).with_name("mudarrib-launch"))]
    with tempfile.TemporaryDirectory() as name:
        times = answers(Path(name), ours, options.rounds) | starts(Path(name), ours, options.rounds)
    usual = statistics.median(cpu for _, cpu in times["python, yaml"])
    print(f"{'':17} {'wall s: median':>14} {'least':>6} {'most':>6}   {'processor s: median':>19} {'times yaml':>10}")
    for name, pairs in times.items():
        walls, cpus = zip(*pairs)
        cpu = statistics.median(cpus)
        spread = f"{statistics.median(walls):14.3f} {min(walls):6.3f} {max(walls):6.3f}"
        print(f"{name:17} {spread}   {cpu:19.3f} {cpu / usual:10.1f}")
    added = list(zip(times["run"], times["accelerate launch"]))
    walls, cpus = ([one[at] - other[at] for one, other in added] for at in (0, 1))
    print(f"run adds {statistics.median(walls):.3f} s (processor {statistics.median(cpus):.3f} s), pair by pair")


if __name__ == "__main__":
    main()
