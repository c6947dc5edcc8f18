"""How a folder appears whole or not at all.

Everything is written into `.tmp-<name>`, every file is synced, the manifest comes last, the folder is renamed to
`<name>`, and the parent is synced. A folder that is replaced steps aside as `.old-<name>` in between; one that
is deleted is renamed to `.del-<name>` first. So at every moment each name shows a whole checkpoint or none, and
what a killed process left behind is known by its name.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from .durable import FileRecord, hash_file, sync_file, sync_folder, write_bytes
from .manifest import NAME, Manifest

_TMP, _OLD, _DEL = ".tmp-", ".old-", ".del-"


def temporary(root: Path, name: str) -> Path:
    """Where a folder is written before it gets its name; the same on every rank."""
    return root / f"{_TMP}{name}"


def begin(root: Path, name: str) -> Path:
    """Clear what dead writers left in `root`, and make the temporary folder. The caller holds the lock."""
    root.mkdir(parents=True, exist_ok=True)
    sweep(root)
    folder = temporary(root, name)
    folder.mkdir()
    return folder


def sweep(root: Path) -> None:
    """Remove what dead writers left; a folder whose replacement never came gets its name back."""
    for path in list(root.iterdir()):
        if path.name.startswith(_OLD):
            target = root / path.name.removeprefix(_OLD)
            if not target.exists():
                path.rename(target)
                continue
        if path.name.startswith((_TMP, _OLD, _DEL)) and path.is_dir():
            shutil.rmtree(path)


def stepped_aside(root: Path) -> list[Path]:
    """Folders whose replacement never came: they are still the newest under their name."""
    return [p for p in root.glob(f"{_OLD}*") if p.is_dir() and not (root / p.name.removeprefix(_OLD)).exists()]


def record_all(folder: Path, known: dict[str, FileRecord]) -> dict[str, FileRecord]:
    """Sync and hash every file below `folder` that isn't `known` yet; subfolders are synced, too."""
    records = dict(known)
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            sync_folder(path)
            continue
        name = path.relative_to(folder).as_posix()
        if name not in records:
            sync_file(path)
            records[name] = hash_file(path)
    return records


def commit(folder: Path, target: Path, manifest: Manifest) -> None:
    """Describe a written folder and give it its name."""
    write_bytes(folder / NAME, manifest.to_bytes())
    give_name(folder, target)


def give_name(folder: Path, target: Path) -> None:
    """Rename a written folder. Before this returns, nothing of it counts; after it, all is on the disk."""
    sync_folder(folder)
    aside = target.with_name(f"{_OLD}{target.name}")
    if target.exists():
        target.rename(aside)
    folder.rename(target)
    sync_folder(target.parent)
    if aside.exists():
        shutil.rmtree(aside)


def remove(path: Path) -> None:
    """Delete a checkpoint: at once by its name, then its files."""
    gone = path.with_name(f"{_DEL}{path.name}")
    path.rename(gone)
    sync_folder(path.parent)
    shutil.rmtree(gone)
