"""Folders that are whole or not there: kills, full disks, other writers, retention."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mudarrib.ckpt_hub import CheckpointError, CheckpointStore
from mudarrib.ckpt_hub.retention import to_delete
from mudarrib.ckpt_hub.store import Saved


def run(code, *arguments, **kwargs):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **kwargs,
    )


class Value:
    def __init__(self, value=0):
        self.value = value

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


HOLD = """
    import sys, time
    from mudarrib.ckpt_hub import CheckpointStore
    import torch
    store = CheckpointStore(sys.argv[1])
    store.save(1, {"model": torch.nn.Linear(2, 2)})
    print("saved", flush=True)
    time.sleep(60)
"""


def test_second_writer_is_refused_until_the_first_is_dead(tmp_path):
    other = run(HOLD, tmp_path)
    try:
        assert other.stdout.readline() == "saved\n"
        with pytest.raises(CheckpointError, match=f"another process .pid {other.pid}"):
            CheckpointStore(tmp_path).save(2, {"v": Value()})
        assert CheckpointStore(tmp_path).newest().step == 1  # reading is free
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    CheckpointStore(tmp_path).save(2, {"v": Value()})


def test_forked_child_of_a_dead_writer_holds_no_lock(tmp_path):
    code = HOLD.replace('print("saved"', "import os; child = os.fork(); child and print(child")
    other = run(code, tmp_path)
    child = int(other.stdout.readline())
    try:
        other.send_signal(signal.SIGKILL)
        other.wait()
        os.kill(child, 0)  # alive
        CheckpointStore(tmp_path).save(2, {"v": Value()})
    finally:
        os.kill(child, signal.SIGKILL)
        other.communicate()


def test_stores_of_one_process_share_and_wait_gives_back(tmp_path):
    first, second = CheckpointStore(tmp_path), CheckpointStore(tmp_path)
    first.save(1, {"v": Value()})
    second.save(2, {"v": Value()})
    first.wait()
    second.wait()
    other = run(HOLD, tmp_path)
    assert other.stdout.readline() == "saved\n"
    other.kill()
    other.communicate()


def test_full_disk_is_named_and_the_older_one_stays(tmp_path):
    code = """
        import resource, signal, sys
        import torch
        from mudarrib.ckpt_hub import CheckpointError, CheckpointStore
        store = CheckpointStore(sys.argv[1], background=sys.argv[2] == "background")
        model = {"model": torch.nn.Linear(100, 100)}
        store.save(1, model)
        store.wait()
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        try:
            store.save(2, model)
            store.wait()
        except CheckpointError as error:
            print(error)
    """
    for mode in ("at once", "background"):
        out, err = run(code, tmp_path / mode, mode).communicate()
        assert "File too large" in out and "Free some space" in out, err
        store = CheckpointStore(tmp_path / mode)
        store.verify("checkpoint-1")
        assert [path.name for path in (tmp_path / mode).glob("*checkpoint*")] == ["checkpoint-1"]


def test_folder_without_rights_is_named_and_still_loads():
    # Not in pytest's own folder: another user may not even look into that.
    folder = Path(tempfile.mkdtemp())
    CheckpointStore(folder).save(1, {"v": Value(5)})
    code = """
        import os, sys, tempfile
        import torch
        from mudarrib.ckpt_hub import CheckpointError, CheckpointStore, RngState
        with tempfile.TemporaryDirectory() as own:  # loads all modules while they can be read
            CheckpointStore(own).save(1, {"rng": RngState()})
            CheckpointStore(own).load({})
        if os.geteuid() == 0:  # root may write everywhere
            os.setuid(65534)
        store = CheckpointStore(sys.argv[1])
        try:
            store.save(2, {"rng": RngState()})
        except CheckpointError as error:
            print(error)
        print(store.load({}).step)
    """
    folder.chmod(0o555)
    try:
        out, err = run(code, folder).communicate()
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)
    assert "Permission denied" in out and "writable folder" in out and out.endswith("1\n"), err


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="writable folder"):
        CheckpointStore(tmp_path / "file" / "run").save(1, {"v": Value()})


def test_leftovers_of_a_killed_writer(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(1, {"v": Value(1)})
    (tmp_path / "checkpoint-1").rename(tmp_path / ".old-checkpoint-1")  # killed between the two renames
    (tmp_path / ".tmp-checkpoint-1").mkdir()
    (tmp_path / ".del-checkpoint-0").mkdir()
    value = Value()
    assert CheckpointStore(tmp_path).load({"v": value}).step == 1
    assert value.value == 1
    store.save(2, {"v": value})
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "checkpoint-1", "checkpoint-2"}


def test_failed_writer_of_extra_files_leaves_nothing(tmp_path):
    def fail(folder):
        (folder / "half").write_text("x")
        raise ValueError("no tokenizer")

    store = CheckpointStore(tmp_path)
    with pytest.raises(ValueError, match="no tokenizer"):
        store.save(1, {"v": Value()}, extra_files={"tokenizer": fail})
    assert {path.name for path in tmp_path.iterdir()} == {".lock"}


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda store: store.save(-1, {}), "step: -1"),
        (lambda store: store.save(1, {"a/b": Value()}), "a/b"),
        (lambda store: store.save(1, {"v": 3}), "'v' is a int"),
        (lambda store: store.save(1, {"v": Value()}, extra_files={"x": 3}), "'x' is a int"),
        (lambda store: store.save(1, {"v": Value(object())}), "part 'v', state at value"),
        (lambda store: store.load({}, "nowhere"), "manifest.json: missing"),
        (lambda store: CheckpointStore(store.root, keep=0), "keep: 0"),
    ],
)
def test_bad_input_is_named(tmp_path, call, names):
    with pytest.raises(CheckpointError, match=names):
        call(CheckpointStore(tmp_path))


def test_state_that_does_not_fit_names_the_part(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(1, {"model": torch.nn.Linear(2, 2)})
    with pytest.raises(CheckpointError, match="part 'model' of .*checkpoint-1: does not fit"):
        store.load({"model": torch.nn.Linear(3, 2)})


steps = st.lists(st.integers(0, 50), unique=True, max_size=12)


@given(steps=steps, keep=st.none() | st.integers(1, 8), protect=st.sets(st.integers(0, 50), max_size=3), data=st.data())
def test_retention(steps, keep, protect, data):
    saved = [Saved(Path(f"checkpoint-{step}"), step) for step in steps]
    newest = data.draw(st.none() | st.sampled_from([s.path for s in saved])) if saved else None
    gone = to_delete(saved, keep, newest=newest, protect=protect)
    left = [s for s in saved if s.path not in gone]
    must = {s.step for s in saved if s.step in protect} | {s.step for s in saved if s.path == newest}
    if newest is None and steps:
        must.add(max(steps))
    assert must <= {s.step for s in left}
    if keep is None:
        assert not gone
    else:
        assert len(left) == min(len(saved), max(keep, len(must)))
        optional = sorted(s.step for s in left if s.step not in must)
        assert not gone or not optional or max(int(p.name[11:]) for p in gone) < optional[0]
