#!/usr/bin/env python3
"""How soon `mudarrib-launch` answers: wall time and processor time of its commands, beside a plain Python with PyYAML.

Commands take turns, so that what else the machine does falls on all of them.

    python tools/bench/launch_start.py --rounds 9
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


def took(command: list[str]) -> tuple[float, float]:
    """Seconds on the clock, and of the processor."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, config = Path(folder, "config.json"), str(Path(folder, "c.yaml"))
        model.write_text(json.dumps(GPT2))
        ours = [str(Path(sys.executable).with_name("mudarrib-launch"))]
        subprocess.run([*ours, "new", "ddp", "-o", config], check=True, stdout=subprocess.DEVNULL)
        commands = {
            "python, yaml": [sys.executable, "-c", "import yaml"],
            "--help": [*ours, "--help"],
            "new": [*ours, "new", "ddp", "-o", "-"],
            "check": [*ours, "check", config],
            "check, Arabic": [*ours, "--lang", "ar", "check", config],
            "plan": [*ours, "plan", "--model", str(model), "--gpus", "8", "--gpu-memory", "80GB"],
        }
        script, plain = Path(folder, "script.py"), str(Path(folder, "plain.yaml"))
        script.write_text("pass")
        subprocess.run([*ours, "new", "cpu", "-o", plain, "num_processes=1", "distributed_type=NO"], check=True)
        launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", plain, str(script)]
        commands |= {"accelerate launch": launch, "run": [*ours, "run", plain, str(script)]}
        times = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                times[name].append(took(command))
    print(f"{'':17} {'wall s: median':>14} {'least':>6} {'most':>6}   {'processor s: median':>19}")
    for name, pairs in times.items():
        walls, cpus = zip(*pairs)
        least, most = min(walls), max(walls)
        print(f"{name:17} {statistics.median(walls):14.3f} {least:6.3f} {most:6.3f}   {statistics.median(cpus):19.3f}")
    added = [ours[0] - theirs[0] for ours, theirs in zip(times["run"], times["accelerate launch"])]
    print(f"run adds {statistics.median(added):.3f} s to accelerate launch, pair by pair")


if __name__ == "__main__":
    main()
