"""A package's release, and which tests a change needs, in a clone of the repository."""

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = Path(sys.executable).parent.parent


@pytest.fixture
def clone(tmp_path):
    """The tree as it stands, in a repository of its own, with this environment."""
    place = tmp_path / "mudarrib"
    place.mkdir()
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes((ROOT / name).read_bytes())
            (place / name).chmod((ROOT / name).stat().st_mode)
    (place / ".venv").mkdir()
    (place / ".venv" / "bin").symlink_to(ENVIRONMENT / "bin")
    made_from = "from _env import made_from; print(made_from(), end='')"
    done = subprocess.run(
        [sys.executable, "-c", made_from], cwd=place / "tools", capture_output=True, text=True, check=True
    )
    (place / ".venv" / "made-from").write_text(done.stdout)
    git(place, "init", "-q", "-b", "main")
    commit(place)
    return place


def run(place, *command):
    who = {
        f"GIT_{role}_{what}": "someone@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    return subprocess.run(command, cwd=place, capture_output=True, text=True, env={**os.environ, **who})


def git(place, *command):
    done = run(place, "git", *command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commit(place):
    git(place, "add", "-A")
    git(place, "commit", "-qm", "a change")


def tool(place, name, *given):
    return run(place, sys.executable, f"tools/{name}", *given)


def changelog(place, package="launch"):
    return (place / "packages" / package / "CHANGELOG.md").read_text()


def test_a_first_release_leaves_no_fragments_to_the_next_one(clone):
    (clone / "packages/launch/changes/early.fixed.md").write_text("Something.\n")
    commit(clone)
    done = tool(clone, "release", "launch", "first")
    assert done.returncode == 1 and "put early.fixed.md into its section by hand" in done.stderr
    assert not git(clone, "status", "--porcelain") and not git(clone, "tag")


def test_a_first_release_and_the_next_one(clone):
    done = tool(clone, "release", "launch", "first")
    assert done.returncode == 0, done.stderr
    today = datetime.date.today().isoformat()
    assert f"## 0.1.0 ({today})" in changelog(clone)
    assert tool(clone, "release", "launch", "minor").stderr.strip().endswith("there is nothing to release")
    (clone / "packages/launch/changes/doctor.added.md").write_text("`doctor` looks at the machine.\n")
    commit(clone)
    done = tool(clone, "release", "launch", "minor")
    assert done.returncode == 0, done.stderr
    text = changelog(clone)
    assert text.index(f"## 0.2.0 ({today})") < text.index("- `doctor` looks at the machine.") < text.index("## 0.1.0")
    assert not list((clone / "packages/launch/changes").glob("*.md"))
    assert git(clone, "tag").split() == ["launch-v0.1.0", "launch-v0.2.0"] and not git(clone, "status", "--porcelain")
    assert tool(clone, "release", "launch", "--verify", "0.2.0").returncode == 0
    assert tool(clone, "release", "launch", "--verify", "0.1.0").returncode != 0


def test_a_release_that_a_sibling_does_not_allow_is_refused_and_changes_nothing(clone):
    assert tool(clone, "release", "ckpt-hub", "first").returncode == 0
    (clone / "packages/ckpt-hub/changes/x.added.md").write_text("x\n")
    commit(clone)
    done = tool(clone, "release", "ckpt-hub", "minor")
    assert done.returncode != 0 and "core-loop allows mudarrib-ckpt-hub>=0.1,<0.2" in done.stderr
    assert git(clone, "tag").split() == ["ckpt-hub-v0.1.0"] and not git(clone, "status", "--porcelain")
    assert tool(clone, "release", "ckpt-hub", "patch").returncode == 0


@pytest.mark.parametrize(
    ("file", "packages"),
    [
        ("packages/launch/src/mudarrib/launch/rules/x.py", ["launch"]),
        ("packages/core-loop/src/mudarrib/core_loop/x.py", ["core-loop", "sft"]),
        ("packages/ckpt-hub/tests/test_x.py", ["ckpt-hub", "core-loop", "sft"]),
        ("tools/constraints.txt", ["ckpt-hub", "core-loop", "optim-extras", "sft", "launch"]),
        ("README.md", []),
    ],
)
def test_a_change_names_the_packages_that_it_touches_and_those_that_stand_on_them(clone, file, packages):
    (clone / file).parent.mkdir(parents=True, exist_ok=True)
    (clone / file).write_text("changed\n")
    commit(clone)
    assert json.loads(tool(clone, "changed", "HEAD~1").stdout) == packages


def test_a_change_of_a_package_must_be_told(clone):
    (clone / "packages/launch/src/mudarrib/launch/x.py").write_text("\n")
    commit(clone)
    assert tool(clone, "changed", "HEAD~1", "--fragments").returncode == 0, "a first version has no changes"
    assert tool(clone, "release", "launch", "first").returncode == 0
    done = tool(clone, "changed", "HEAD~2", "--fragments")
    assert done.returncode == 1 and "packages/launch/changes" in done.stdout
    (clone / "packages/launch/changes/x.fixed.md").write_text("x\n")
    commit(clone)
    assert tool(clone, "changed", "HEAD~3", "--fragments").returncode == 0
