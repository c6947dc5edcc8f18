"""A hundred damaged checkpoint folders; `tools/bench/ckpt_mutations.py` does a thousand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "bench" / "ckpt_mutations.py"


@pytest.mark.slow
def test_damaged_folders_give_the_older_one_or_a_clear_error():
    command = [sys.executable, TOOL, "--mutations", "100", "--seed", "1"]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr
    assert result.stdout.strip().startswith("100 mutations") and result.stdout.strip().endswith(": 0 failures")
