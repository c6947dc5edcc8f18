"""Damage checkpoint folders in every way, load them, and see that nothing worse than a clear error comes of it.

Each mutation hits the newer of two checkpoints: flipped bits, cut, removed, swapped and replaced files, hostile JSON
and pickles, and files changed together with their manifest, as somebody would who wants the loader to believe them.
Loading (the newest, and the damaged one by name) happens in a process of its own and must end in one of: the older
checkpoint's exact state, the newer's exact state (where the mutation did not touch it), or a CheckpointError. Where
the manifest was forged, other data may be loaded, since it can't be told from real data. A crash, another exception,
wrong state or a pickle that ran counts as a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

from mudarrib.ckpt_hub import CheckpointError, CheckpointStore, RngState
from mudarrib.ckpt_hub.durable import hash_file
from mudarrib.ckpt_hub.manifest import Manifest


class Bomb:
    """A pickle that makes a file when it is executed."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return (open, (self.path, "w"))


class Holder:
    """A part with a state of every kind."""

    def __init__(self, value: int) -> None:
        self.state = {"step": value, "history": [{"loss": 0.5, "nan": float("inf")}], "bytes": b"x" * 9000, 3: {1, 2}}

    def state_dict(self) -> dict[object, object]:
        return self.state

    def load_state_dict(self, state: dict[object, object]) -> None:
        self.state = dict(state)


def make_parts(value: int) -> dict[str, object]:
    torch.manual_seed(value)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    return {"model": model, "optimizer": optimizer, "rng": RngState(), "holder": Holder(value)}


def content(parts: dict[str, object]) -> str:
    """Everything that loading may change, as text."""
    return repr([part.state_dict() for part in parts.values()])  # type: ignore[attr-defined]  # all are Stateful


HOSTILE_JSON = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b'{"version":1,"parts":{}}',
    b'{"version":1,"parts":[]}',
    b'{"version":1,"parts":{"holder":{"$":"os.system","items":["true"]}}}',
    b'{"version":1e999,"parts":{}}',
    b'{"format":"mudarrib-checkpoint","version":1,"digest":"","files":{"../../etc":{"size":1,"sha256":""}}}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"9" * 100_000,
    b"\xff\xfe\x00",
    b'{"version":1,"state":{"$":"tensor","dtype":"float32","shape":[99999999999],"data":"AAAA"}}',
]


def flip(path: Path, times: int) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(times if data else 0):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: random.randrange(len(data) or 1)])


def swap(a: Path, b: Path) -> None:
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)


def bomb(path: Path, flag: Path) -> None:
    if random.random() < 0.5:
        path.write_bytes(pickle.dumps(Bomb(str(flag))))
    else:
        torch.save({"x": Bomb(str(flag))}, path)


def forge(folder: Path) -> None:
    """Make a manifest that fits what lies there now."""
    old = Manifest.read(folder)
    records = {name: hash_file(folder / name) for name in old.files if (folder / name).exists()}
    new = Manifest(old.step, old.metric, old.parts, old.ranked, old.world_size, records)
    (folder / "manifest.json").write_bytes(new.to_bytes())


def twist(node: object) -> object:
    """JSON with one value somewhere replaced by something else."""
    if isinstance(node, dict) and node and random.random() < 0.85:
        key = random.choice(list(node))
        return {**node, key: twist(node[key])}
    if isinstance(node, list) and node and random.random() < 0.85:
        at = random.randrange(len(node))
        return [*node[:at], twist(node[at]), *node[at + 1 :]]
    strange = [None, -1, 2**70, 1e308, "", "x", [], {}, [[]], {"$": "tuple"}, {"$": "tensor", "name": "0.weight"}, True]
    return random.choice([*strange, {"$": "dtype", "name": "float32"}, {"$": "bytes", "data": "AAAA"}])


def twist_header(path: Path) -> None:
    """A safetensors file whose header lies."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    if random.random() < 0.3:
        path.write_bytes(random.choice([2**63, 0, length + 1, 2**31]).to_bytes(8, "little") + data[8:])
        return
    header = json.dumps(twist(json.loads(data[8 : 8 + length]))).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])


def mutate(new: Path, old: Path, flag: Path) -> tuple[str, bool]:
    """Do one; its name, and whether the manifest was forged along with it."""
    files = sorted(path for path in new.rglob("*") if path.is_file())
    beside = new / random.choice(["optimizer.pt", "scheduler.pt", "rng_state.pth", "pytorch_model.bin"])
    path = random.choice(files)
    json_files = [file for file in files if file.suffix == ".json" and file.name != "manifest.json"]
    tensor_files = [file for file in files if file.suffix == ".safetensors"]
    kinds: dict[str, Callable[[], object]] = {
        "flip": lambda: flip(path, random.randint(1, 3)),
        "cut": lambda: cut(path),
        "remove": path.unlink,
        "swap within": lambda: swap(path, random.choice(files)),
        "swap with older": lambda: swap(path, old / path.name),
        "hostile JSON": lambda: path.write_bytes(random.choice(HOSTILE_JSON)),
        "pickle in place": lambda: bomb(path, flag),
        "pickle beside": lambda: bomb(beside, flag),
        "pickles, no manifest": lambda: (bomb(new / "optimizer.pt", flag), (new / "manifest.json").unlink()),
        "grow": lambda: path.write_bytes(path.read_bytes() + b"\0" * random.randint(1, 9)),
        "folder in place": lambda: (path.unlink(), path.mkdir()),
        "forged flip": lambda: (flip(random.choice(tensor_files + json_files), 3), forge(new)),
        "forged JSON": lambda: (edit(random.choice(json_files)), forge(new)),
        "forged header": lambda: (twist_header(random.choice(tensor_files)), forge(new)),
        "forged hostile JSON": lambda: (random.choice(json_files).write_bytes(random.choice(HOSTILE_JSON)), forge(new)),
        "forged pickle": lambda: (bomb(path, flag), forge(new)),
    }
    name = random.choice(list(kinds))
    with contextlib.suppress(CheckpointError):  # the pickle fell on the manifest itself: nothing left to forge
        kinds[name]()
    return name, name.startswith("forged")


def edit(path: Path) -> None:
    path.write_text(json.dumps(twist(json.loads(path.read_bytes()))))


def load_all(root: Path, allowed: dict[int, str], forged: bool) -> None:
    """Load in this process; anything but a good end raises."""
    for checkpoint in (None, root / "checkpoint-2"):
        parts = make_parts(7)
        try:
            saved = CheckpointStore(root).load(parts, checkpoint)
        except CheckpointError:
            continue
        found = content(parts)
        if found != allowed[saved.step] and not (forged and saved.step == 2):
            raise AssertionError(f"step {saved.step} came back with other content")


def tried(root: Path, allowed: dict[int, str], forged: bool, log: Path) -> str | None:
    """Load in a child; what went wrong, or None."""
    child = os.fork()
    if not child:
        code = 1
        try:
            with log.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                load_all(root, allowed, forged)
                code = 0
        except BaseException:
            log.write_text(traceback.format_exc())
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"killed by signal {os.WTERMSIG(status)}"
    return log.read_text() if os.WEXITSTATUS(status) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(options.seed)
    base = Path(tempfile.mkdtemp(prefix="ckpt-mutations-"))
    done: Counter[str] = Counter()
    failures: list[str] = []
    try:
        allowed = {}
        for step in (1, 2):
            parts = make_parts(step)
            CheckpointStore(base / "good").save(step, parts)
            fresh = make_parts(9)
            CheckpointStore(base / "good").load(fresh)
            allowed[step] = content(fresh)
        for number in range(options.mutations):
            root, flag = base / "bad", base / "executed"
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(base / "good", root)
            name, forged = mutate(root / "checkpoint-2", root / "checkpoint-1", flag)
            wrong = tried(root, allowed, forged, base / "log")
            if flag.exists():
                wrong = f"A PICKLE RAN: {wrong}"
                flag.unlink()
            done[name] += 1
            if wrong:
                failures.append(f"mutation {number}, {name}: {wrong}")
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print("\n".join(failures))
    print(f"{sum(done.values())} mutations ({dict(sorted(done.items()))}): {len(failures)} failures")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
