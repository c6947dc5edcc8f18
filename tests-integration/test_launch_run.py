"""`mudarrib-launch run`: checked, handed over, and a failure told once, the first cause first."""

import os
import socket
import subprocess
import sys

import pytest

from mudarrib.launch import new, write

SCRIPT = """
import os, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
print("flags", *sys.argv[1:], "world", dist.get_world_size(), flush=True)
if "fail" in sys.argv and rank == 1:
    raise RuntimeError("the second process has had enough")
if "all" in sys.argv:
    raise RuntimeError("nobody goes on")
if "fail" in sys.argv:
    time.sleep(60)
dist.destroy_process_group()
"""


def run(tmp_path, *words, config=None):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    write(config or new("cpu", main_process_port=port), tmp_path / "c.yaml")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [
        sys.executable,
        "-c",
        "from mudarrib.launch.cli import main; raise SystemExit(main())",
        "run",
        str(tmp_path / "c.yaml"),
        *words,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LANG": "C"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, cwd=tmp_path)


@pytest.mark.slow
def test_flags_reach_the_launcher_and_the_script(tmp_path):
    done = run(tmp_path, "--num_processes=1", "script.py", "--lr", "3")
    assert done.returncode == 0, done.stderr
    assert "flags --lr 3 world 1" in done.stdout


@pytest.mark.slow
def test_one_process_fails_and_its_error_is_told_once(tmp_path):
    done = run(tmp_path, "script.py", "fail")
    assert done.returncode
    assert done.stderr.count("RuntimeError: the second process has had enough") == 1
    assert "process 1 failed first, exit code 1." in done.stderr.splitlines()[-1]
    assert "ChildFailedError" not in done.stderr and "torch/distributed/launcher" not in done.stderr


@pytest.mark.slow
def test_all_fail_alike_and_it_is_told_once(tmp_path):
    done = run(tmp_path, "script.py", "all")
    assert done.stderr.count("RuntimeError: nobody goes on") == 1
    assert done.stderr.count("Traceback") == 1


def test_a_wrong_config_starts_nothing(tmp_path):
    done = run(tmp_path, "script.py", config=new("cpu", num_processes=0))
    assert done.returncode == 1 and "M001" in done.stdout and "flags" not in done.stdout
