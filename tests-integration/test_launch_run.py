"""`mudarrib-launch run`: checked, handed over, and a failure told once, the first cause first."""

import os
import signal
import socket
import subprocess
import sys
import time

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


def command_of(tmp_path, *words, config=None):
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
    return command, {**os.environ, "OMP_NUM_THREADS": "1", "LANG": "C"}


def run(tmp_path, *words, config=None):
    command, environment = command_of(tmp_path, *words, config=config)
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, cwd=tmp_path)


def alone():
    return new("cpu", num_processes=1, distributed_type="NO")


@pytest.mark.slow
def test_flags_reach_the_launcher_and_the_script(tmp_path):
    done = run(tmp_path, "--num_processes=1", "script.py", "--lr", "3")
    assert done.returncode == 0, done.stderr
    assert "flags --lr 3 world 1" in done.stdout


@pytest.mark.slow
def test_one_process_fails_and_its_error_is_told_once(tmp_path):
    done = run(tmp_path, "script.py", "fail")
    assert done.returncode == 1
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
    assert done.returncode == 1 and "M001" in done.stderr and not done.stdout


def test_without_a_script_nothing_is_started(tmp_path):
    for words in ([], ["no.py"], ["--num_processes=1", "no.py", "--flag"]):
        done = run(tmp_path, *words)
        assert done.returncode == 2 and not done.stdout
        assert done.stderr.count("\n") == 1 and "script = " in done.stderr


def test_without_accelerate_it_says_what_to_install(tmp_path):
    command, environment = command_of(tmp_path, "script.py")
    command[2] = "import sys; sys.modules['accelerate'] = None; " + command[2]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 2 and "mudarrib-launch[run]" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("import sys; print('mine'); sys.exit(3)", 3, "the script failed, exit code 3."),
        ("import os; print('mine', flush=True); os.kill(os.getpid(), 9)", 137, "the script failed, ended by SIGKILL."),
        ("print('mine')\nimport nothing_of_that_name", 1, "the script failed, exit code 1."),
    ],
)
def test_a_script_s_own_code_is_passed_on(tmp_path, body, code, said):
    (tmp_path / "own.py").write_text(body)
    done = run(tmp_path, "own.py", config=alone())
    assert (done.returncode, done.stdout) == (code, "mine\n")
    assert said in done.stderr and "CalledProcessError" not in done.stderr
    assert done.stderr.count("Traceback") == ("nothing_of" in body)


@pytest.mark.slow
def test_of_several_the_first_code_is_passed_on(tmp_path):
    (tmp_path / "own.py").write_text(
        "import os, time\nif os.environ['RANK'] == '1': os.kill(os.getpid(), 9)\ntime.sleep(60)"
    )
    done = run(tmp_path, "own.py")
    assert done.returncode == 137
    assert done.stderr.splitlines()[-2:] == [
        "mudarrib-launch: process 1 failed first, ended by SIGKILL.",
        "Often the machine had no memory left: dmesg tells.",
    ]
    assert "torch/distributed" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("config", [alone, lambda: None], ids=["alone", "two"])
def test_it_can_be_ended(tmp_path, number, code, config):
    (tmp_path / "own.py").write_text("import os, time; os.write(1, b'up\\n'); time.sleep(50)")
    command, environment = command_of(tmp_path, "own.py", config=config())
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout.readline() == "up\n"
    time.sleep(0.5)
    # A terminal sends Ctrl-C to all, a scheduler its signal to the group.
    os.killpg(process.pid, number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == code, told
    assert "mudarrib/launch" not in told, "no traceback of ours"
