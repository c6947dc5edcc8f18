"""Twenty SIGKILLs; `tools/kill_test` does two hundred."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "kill_test"


@pytest.mark.slow
def test_killed_runs_resume_and_lose_nothing():
    result = subprocess.run(
        [sys.executable, TOOL, "--kills", "20"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith("20 kills") and "0 lost checkpoints, all weights bit-equal" in result.stdout
