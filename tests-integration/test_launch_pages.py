"""What the tools write of launch's rules and sentences is current: the page of rules, the catalogue of Arabic."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_page_of_rules_is_current():
    subprocess.run([sys.executable, ROOT / "tools" / "rules_page.py", "--check"], check=True)


def test_every_sentence_is_translated():
    done = subprocess.run([sys.executable, ROOT / "tools" / "catalogues.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
