"""Checkpoints from and to the layout of transformers' Trainer."""

from __future__ import annotations

import shutil
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from . import commit, hf_layout
from .errors import CheckpointError
from .hf_layout import TRAINER_STATE, PeerCheckpoint
from .restore import OwnCheckpoint, open_checkpoint
from .store import CheckpointStore, Saved


class _Held:
    """A part that has a state and no object."""

    def __init__(self, state: dict[str, Any], per_rank: bool = False) -> None:
        self.per_rank = per_rank
        self._state = state

    def state_dict(self) -> dict[str, Any]:
        return self._state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._state = state_dict


def to_peers(checkpoint: str | PathLike[str], target: str | PathLike[str]) -> Path:
    """Write a checkpoint of ours as one that transformers' Trainer resumes.

    The model's own files are copied, the states become `optimizer.pt`, `scheduler.pt`, `scaler.pt` and
    `rng_state.pth`, which are pickles: that is what the Trainer reads.

    Args:
        checkpoint: A checkpoint of ours.
        target: The folder to make; not there yet. The Trainer finds it by itself if it is named
            `checkpoint-<step>`.

    Returns:
        The target.

    Raises:
        CheckpointError: The checkpoint is damaged or is none of ours, or the target is there.
    """
    source = open_checkpoint(Path(checkpoint))
    if not isinstance(source, OwnCheckpoint):
        raise CheckpointError("checkpoint", f"{checkpoint} is in the Trainer's layout already", "Copy it.")
    source.check_hashes()
    target = _new(target)
    wanted = ("optimizer", "scheduler", "scaler", "progress")
    states = source.read_shared([name for name in wanted if name in source.parts])
    ranks = range(source.manifest.world_size) if "rng" in source.manifest.ranked else ()
    rng_by_rank = [source.read_rank("rng", i) for i in ranks]
    folder = commit.begin(target.parent, target.name)
    try:
        _copy_files(source, folder)
        hf_layout.write_peer_files(folder, states, source.step, rng_by_rank)
        commit.record_all(folder, {})
        commit.give_name(folder, target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return target


def from_peers(checkpoint: str | PathLike[str], target: str | PathLike[str]) -> Saved:
    """Write a checkpoint of transformers' Trainer as one of ours, with a manifest and without pickles.

    Args:
        checkpoint: A checkpoint of the Trainer.
        target: The folder to make, `checkpoint-<step>`; not there yet.

    Returns:
        The new checkpoint.

    Raises:
        CheckpointError: The checkpoint is damaged or none of the Trainer's, or the target is there.
    """
    source = open_checkpoint(Path(checkpoint))
    if not isinstance(source, PeerCheckpoint):
        raise CheckpointError("checkpoint", f"{checkpoint} is one of ours already", "Copy it.")
    source.check_sizes()
    target = _new(target)
    if target.name != f"checkpoint-{source.step}":
        raise CheckpointError("target", target, f"Name it checkpoint-{source.step}.")
    names = [name for name in source.parts if name not in ("model", "rng")]
    parts = {name: _Held(state) for name, state in source.read_states(dict.fromkeys(names, _Held({}))).items()}
    if "rng" in source.parts:
        parts["rng"] = _Held(source.read_states({"rng": _Held({})})["rng"], per_rank=True)

    extra_files = {"copied": partial(_copy_files, source)}
    return CheckpointStore(target.parent).save(source.step, parts, extra_files=extra_files)


def _copy_files(source: OwnCheckpoint | PeerCheckpoint, folder: Path) -> None:
    """Copy what both layouts have: the model's own files, and the Trainer's progress."""
    names = [*source.model_files(), TRAINER_STATE]
    for name in (name for name in names if (source.path / name).exists()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.path / name, folder / name)


def _new(target: str | PathLike[str]) -> Path:
    path = Path(target)
    if path.exists():
        raise CheckpointError("target", f"{path} exists", "Name a folder that is not there yet.")
    return path
