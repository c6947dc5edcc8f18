"""`mudarrib-ckpt`: look at checkpoints, check, convert, prune and push them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .errors import CheckpointError

if TYPE_CHECKING:
    from .store import Saved

# torch is imported by the commands that need it, so that --help answers at once.
Row = Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: What follows the program's name; None for the process's own.

    Returns:
        0, or 1 when something is damaged, refused or failed, or 2 for a wrong use.
    """
    options = parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except CheckpointError as error:
        print(f"mudarrib-ckpt: {error}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """The command line of `mudarrib-ckpt`."""
    whole = argparse.ArgumentParser(prog="mudarrib-ckpt", description="Look after the checkpoints of a training run.")
    whole.add_argument("--version", action="version", version=__version__)
    commands = whole.add_subparsers(required=True, metavar="command")

    def add(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        command.add_argument("--json", action="store_true", help="print JSON instead of text")
        return command

    add("ls", _ls, "List the checkpoints of a run, oldest first.").add_argument(
        "root", type=Path, help="the run's folder"
    )
    verify = add("verify", _verify, "Read every file and compare its SHA-256.")
    verify.add_argument("paths", type=Path, nargs="+", help="checkpoints, or folders of runs")
    add("show", _show, "Show what a checkpoint holds.").add_argument("checkpoint", type=Path)
    convert = add("convert", _convert, "Write a checkpoint in the other layout: transformers' Trainer's, or ours.")
    convert.add_argument("checkpoint", type=Path)
    convert.add_argument("target", type=Path, help="the folder to make")
    prune = add("prune", _prune, "Delete old checkpoints. The newest valid one always stays.")
    prune.add_argument("root", type=Path, help="the run's folder")
    prune.add_argument("--keep", type=int, required=True, help="how many stay")
    prune.add_argument("--protect", type=int, nargs="*", default=[], metavar="STEP", help="steps that stay in any case")
    prune.add_argument("--dry-run", action="store_true", help="only say what would go")
    push = add("push", _push, "Push a checkpoint, or a folder with a model, to the hub.")
    push.add_argument("folder", type=Path)
    push.add_argument("repo_id", help="user/name; the token is that of `hf auth login` or of HF_TOKEN")
    push.add_argument("--whole", action="store_true", help="the training's states, too, to last-checkpoint")
    push.add_argument("--revision", help="the branch")
    push.add_argument("--private", action="store_true", help="make the repository private; refuse a public one")
    push.add_argument("--message", help="of the commit")
    return whole


def _ls(options: argparse.Namespace) -> int:
    from .store import CheckpointStore

    rows = [_row(saved) for saved in CheckpointStore(options.root).checkpoints()]
    if options.json:
        _print_json(rows)
    elif rows:
        _print_table([{**row, "size": _size(row["bytes"]), "parts": ", ".join(row["parts"])} for row in rows], _COLUMNS)
    else:
        print(f"No valid checkpoint in {options.root}.")
    return 0


_COLUMNS = ("step", "metric", "size", "parts", "path")


def _row(saved: Saved) -> dict[str, Any]:
    size = sum(path.stat().st_size for path in saved.path.rglob("*") if path.is_file())
    return {
        "step": saved.step,
        "metric": saved.metric,
        "bytes": size,
        "parts": list(saved.parts),
        "path": str(saved.path),
    }


def _verify(options: argparse.Namespace) -> int:
    from .store import CheckpointStore

    rows = []
    for path in (checkpoint for given in options.paths for checkpoint in _checkpoints(given)):
        try:
            CheckpointStore(path.parent).verify(path)
            rows.append({"path": str(path), "ok": True, "error": None})
        except CheckpointError as error:
            rows.append({"path": str(path), "ok": False, "error": str(error)})
    if options.json:
        _print_json(rows)
    else:
        for row in rows:
            print(
                f"{'ok     ' if row['ok'] else 'DAMAGED'}  {row['path']}"
                + (f"  {row['error']}" if row["error"] else "")
            )
    return 0 if rows and all(row["ok"] for row in rows) else 1


def _checkpoints(path: Path) -> list[Path]:
    """The checkpoints of a run's folder, or the one that the path is."""
    inside = sorted(path.glob("checkpoint-*"), key=lambda found: (len(found.name), found.name))
    return [found for found in inside if found.is_dir()] or [path]


def _show(options: argparse.Namespace) -> int:
    from .restore import OwnCheckpoint, open_checkpoint

    checkpoint = open_checkpoint(options.checkpoint)
    shown: dict[str, Any] = {
        "step": checkpoint.step,
        "metric": checkpoint.metric,
        "parts": list(checkpoint.parts),
        "layout": "mudarrib" if isinstance(checkpoint, OwnCheckpoint) else "transformers",
        "files": {path.name: path.stat().st_size for path in sorted(options.checkpoint.iterdir()) if path.is_file()},
    }
    if isinstance(checkpoint, OwnCheckpoint):
        manifest = checkpoint.manifest
        shown |= {"world_size": manifest.world_size, "per_rank": list(manifest.ranked)}
        shown["files"] = {name: record.size for name, record in manifest.files.items()}
    if options.json:
        _print_json(shown)
        return 0
    for name, value in shown.items():
        if name != "files":
            print(f"{name:11} {', '.join(value) if isinstance(value, list) else value}")
    _print_table([{"file": name, "size": _size(size)} for name, size in shown["files"].items()], ("file", "size"))
    return 0


def _convert(options: argparse.Namespace) -> int:
    from .convert import from_peers, to_peers
    from .restore import OwnCheckpoint, open_checkpoint

    if isinstance(open_checkpoint(options.checkpoint), OwnCheckpoint):
        target, layout = to_peers(options.checkpoint, options.target), "transformers"
    else:
        target, layout = from_peers(options.checkpoint, options.target).path, "mudarrib"
    _say(options, {"path": str(target), "layout": layout}, f"Wrote {target} in the layout of {layout}.")
    return 0


def _prune(options: argparse.Namespace) -> int:
    from .store import CheckpointStore

    gone = CheckpointStore(options.root).prune(options.keep, protect=options.protect, dry_run=options.dry_run)
    verb = "Would delete" if options.dry_run else "Deleted"
    lines = [f"{verb} {path}" for path in gone] or ["Nothing to delete."]
    _say(options, {"deleted": [str(path) for path in gone], "dry_run": options.dry_run}, "\n".join(lines))
    return 0


def _push(options: argparse.Namespace) -> int:
    from .hub.push import HubPusher
    from .manifest import NAME

    is_checkpoint = (options.folder / NAME).exists()
    if not options.folder.is_dir() or (options.whole and not is_checkpoint):
        raise CheckpointError("folder", f"{options.folder} is no checkpoint", "Name the folder to push.")
    pusher = HubPusher(
        options.repo_id,
        private=options.private or None,
        revision=options.revision,
        strategy="checkpoint" if options.whole else "every_save",
    )
    arrived = pusher.push(options.folder, "save" if is_checkpoint else "end", message=options.message, blocking=True)
    if not arrived:
        raise CheckpointError("hub", pusher.error or "not sent", "Nothing local has changed: try again.")
    _say(
        options, {"repo_id": pusher.repo_id, "commit": pusher.commit}, f"Pushed to {pusher.repo_id} ({pusher.commit})."
    )
    return 0


def _say(options: argparse.Namespace, value: object, text: str) -> None:
    if options.json:
        _print_json(value)
    else:
        print(text)


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=1))


def _print_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    lines = [list(columns), *([("" if row[name] is None else str(row[name])) for name in columns] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _size(n_bytes: int) -> str:
    size = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


if __name__ == "__main__":
    sys.exit(main())
