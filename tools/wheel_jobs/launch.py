"""A config made, checked and explained where there is no torch: launch from its wheel."""

import importlib.util
import subprocess
import sys
from pathlib import Path

assert importlib.util.find_spec("torch") is None
command = str(Path(sys.executable).with_name("mudarrib-launch"))
subprocess.run([command, "new", "fsdp2", "-o", "fsdp.yaml", "--yes"], check=True)
subprocess.run([command, "explain", "fsdp.yaml"], check=True, stdout=subprocess.DEVNULL)
Path("wrong.yaml").write_text(Path("fsdp.yaml").read_text().replace("num_processes: 2", "num_proceses: 2"))
assert subprocess.run([command, "check", "wrong.yaml"], stdout=subprocess.DEVNULL).returncode
