"""`mudarrib-launch`: configs for `accelerate launch`, made, checked, explained and run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from . import usage
from .errors import ConfigError, why
from .phrases import LANGUAGES, of_environment, phrase, speaking

if TYPE_CHECKING:
    from pathlib import Path

    from .config import Config
    from .context import Context
    from .rules import Finding

OK, WRONG, UNUSABLE, INTERRUPTED, NOBODY_READS = 0, 1, 2, 130, 141
OF_CHECK = ("fix", "json", "model", "args", "accelerate_version")


def default_path() -> Path:
    """Where accelerate looks for its config."""
    from pathlib import Path

    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    return Path(home).expanduser() / "accelerate" / "default_config.yaml"


def parser() -> argparse.ArgumentParser:
    about = phrase("Configs for `accelerate launch`: made, checked, planned, explained and run.")
    top = argparse.ArgumentParser(prog="mudarrib-launch", description=about)
    top.add_argument("--lang", choices=LANGUAGES, help=phrase("language of all messages; by default the system's"))
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    new = commands.add_parser("new", help=phrase("write a config"))
    new.add_argument("kind", help=phrase("ddp, fsdp, fsdp2, deepspeed, deepspeed-plugin or cpu"))
    new.add_argument("-o", "--output", help=phrase("file to write ('-' prints it); by default accelerate's own place"))
    new.add_argument("--yes", action="store_true", help=phrase("ask nothing, and replace a file that is there"))
    new.add_argument("set", nargs="*", default=[], metavar="KEY=VALUE", help=phrase("other values than the usual ones"))
    check = commands.add_parser("check", help=phrase("find what is wrong before anything starts"))
    check.add_argument("config", nargs="?", help=phrase("the config; by default accelerate's own"))
    check.add_argument("--fix", action="store_true", help=phrase("write what can be mended into the file"))
    check.add_argument("--model", help=phrase("its layers are compared: a config.json, a folder, a name in the cache"))
    check.add_argument(
        "--args", metavar="JSON", help=phrase("training arguments to compare with, as to_json writes them")
    )
    check.add_argument("--accelerate-version", metavar="VERSION", help=phrase("of the machine that launches"))
    check.add_argument("--json", action="store_true", help=phrase("findings as JSON"))
    check.set_defaults(flags=None)
    explain = commands.add_parser("explain", help=phrase("say in plain words what a config starts"))
    explain.add_argument("config", nargs="?", help=phrase("the config; by default accelerate's own"))
    add_plan(commands)
    run = commands.add_parser("run", help=phrase("check a config, then hand over to accelerate launch"))
    run.add_argument("config", help=phrase("the config"))
    run.add_argument("script", nargs=argparse.REMAINDER, help=phrase("the script and its flags"))
    return top


def add_plan(commands: Any) -> None:
    plan = commands.add_parser("plan", help=phrase("find the cheapest setup that fits, and write its config"))
    flag = plan.add_argument
    flag("--model", required=True, help=phrase("config.json, a folder that holds one, or a model in the hub's cache"))
    flag("--gpus", type=int, default=1, help=phrase("GPUs of each machine (1)"))
    flag(
        "--gpu-memory",
        required=True,
        metavar="SIZE",
        help=phrase("of each GPU, as 80GB; a GB is 2^30 bytes, as with GPUs"),
    )
    flag("--nodes", type=int, default=1, help=phrase("machines (1)"))
    flag("--cpu-memory", metavar="SIZE", help=phrase("of each machine; without it, offloading is taken to fit"))
    flag("--reserve", metavar="SIZE", help=phrase("of each GPU, not to be used (1.5 GiB and 5 %%)"))
    flag("--optimizer", default="adamw", help=phrase("as optim in TrainingArguments (adamw)"))
    flag("--rank", type=int, default=128, help=phrase("of GaLore and APOLLO (128)"))
    flag("--batch", type=int, default=1, help=phrase("rows for each GPU and forward pass (1)"))
    flag("--seq-len", type=int, help=phrase("tokens a row (the model's longest, at most 2048)"))
    flag("--accumulation", type=int, default=1, help=phrase("forward passes for each step (1)"))
    flag(
        "--dtype",
        default="float32",
        choices=("float32", "bfloat16", "float16"),
        help=phrase("of the weights (float32)"),
    )
    flag("--mixed-precision", choices=("no", "bf16", "fp16"), help=phrase("of computing (bf16 for weights in float32)"))
    flag("--eager-attention", action="store_true", help=phrase("attention scores are stored"))
    flag("--fsdp-version", type=int, default=2, choices=(1, 2), help="(2)")
    flag("--simulate", action="store_true", help=phrase("measure the setup on fake tensors; needs the extra plan"))
    flag("--picture", metavar="FILE", help=phrase("draw the bars into a file; needs the extra picture"))
    flag("--json", action="store_true", help=phrase("everything as JSON"))
    flag("-o", "--output", help=phrase("write the config ('-' prints it)"))
    flag("--yes", action="store_true", help=phrase("replace a file that is there"))
    flag("set", nargs="*", default=[], metavar="KEY=VALUE", help=phrase("other values for the config"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns 0 if all is well, 1 if a config is wrong, 2 if it cannot be used."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with speaking(language_of(given)):
        return _run(given)


def _run(given: list[str]) -> int:
    usage.translate()
    top = parser()
    options, rest = top.parse_known_args(given)
    if options.command in ("new", "plan"):
        # argparse takes no KEY=VALUE after a flag; people write it there.
        options.set = [*options.set, *(item for item in rest if "=" in item and not item.startswith("-"))]
        rest = [item for item in rest if item not in options.set]
    if rest:
        top.error(phrase("unrecognized arguments: %s") % " ".join(rest))
    try:
        commands = {"new": make, "check": check, "explain": explain, "plan": plan, "run": run}
        code = commands[options.command](options)
        sys.stdout.flush()
        return code
    except ConfigError as error:
        print(f"mudarrib-launch: {error}", file=sys.stderr)
        return UNUSABLE
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read it has seen enough; Python would complain once more on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"mudarrib-launch: {why(error)}", file=sys.stderr)
        return UNUSABLE


def language_of(arguments: Sequence[str]) -> str:
    """The language that is asked for; known before the words are parsed, since help is in it, too."""
    for number, word in enumerate(arguments):
        said = word.removeprefix("--lang=") if word.startswith("--lang=") else None
        if word == "--lang" and number + 1 < len(arguments):
            said = arguments[number + 1]
        if said in LANGUAGES:
            return str(said)
    return of_environment()


def changes_of(items: Sequence[str]) -> dict[str, Any]:
    """What KEY=VALUE words say."""
    if not items:
        return {}
    from .typed import typed

    changes = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals:
            raise ConfigError("KEY=VALUE", item, phrase("write it as num_processes=4"))
        changes[key] = typed(key, value)
    return changes


def plan(options: argparse.Namespace) -> int:
    from . import cli_plan

    return cli_plan.plan(options, changes_of(options.set))


def make(options: argparse.Namespace) -> int:
    from . import ask
    from .config import dump, target, write
    from .kinds import new

    changes = changes_of(options.set)
    config = new(options.kind, **changes)
    if not options.yes and ask.on_a_terminal():
        config = new(options.kind, **changes, **ask.answers(options.kind, config, changes))
    if options.output == "-":
        print(dump(config), end="")
        return OK
    path = target(options.output or default_path(), options.yes)
    write(config, path)
    print(path)
    return OK


def check(options: argparse.Namespace) -> int:
    from .config import read
    from .rules import check as find

    context = context_of(options)
    config = read(options.config or default_path())
    config.context = context
    found = find(config)
    # What is mended may bring to light what was hidden behind it.
    for _ in range(5 if options.fix else 0):
        if not mend(config, found):
            break
        config = read(options.config or default_path())
        config.context = context
        found = find(config)
    if options.json:
        import json
        from dataclasses import asdict

        items = [{**asdict(finding), "value": None if finding.value is ... else finding.value} for finding in found]
        print(json.dumps(items, indent=2, default=str))
    else:
        tell(config, found, sys.stdout if options.flags is None else sys.stderr)
    return WRONG if any(finding.stops for finding in found) else OK


def tell(config: Config, found: Sequence[Finding], out: TextIO) -> None:
    """Say what was found; before a run, only if anything was."""
    for finding in found:
        line, column = finding.place or (0, 0)
        where = f"{config.path}:{line}:{column}" if line else str(config.path)
        print(f"{where}: {finding.code} {finding.message}\n    {finding.consequence}", file=out)
        print(phrase("    Fix: {fix}.", fix=finding.fix), file=out)
    if found:
        print(phrase("{count} found.", count=len(found)), file=out)
    elif out is sys.stdout:
        print(phrase("{path}: nothing wrong was found.", path=config.path))


def context_of(options: argparse.Namespace) -> Context:
    """What the config is to be compared with."""
    from .context import Context, installed_accelerate, read_model_facts, read_training, this_machine

    return Context(
        read_model_facts(options.model) if options.model else None,
        read_training(options.args) if options.args else {},
        options.accelerate_version or installed_accelerate(),
        None if options.flags is None else this_machine(options.flags),
    )


def mend(config: Config, found: Sequence[Finding]) -> bool:
    """Change in the file what can be changed; returns whether anything was."""
    from .config import put
    from .mend import mended, mended_json

    values = {finding.key: finding.value for finding in found if finding.value is not ...}
    names = {finding.key: finding.rename for finding in found if finding.rename is not None}
    removed = frozenset(finding.key for finding in found if finding.remove)
    added = {key: value for finding in found for key, value in finding.add.items()}
    if config.path is not None and config.path.suffix == ".json":
        text = mended_json(config, values, names, removed, added)
    else:
        text = mended(config, values, names, removed, added)
    if text == config.text or config.path is None:
        return False
    put(text, config.path)
    return True


def explain(options: argparse.Namespace) -> int:
    from .config import read
    from .wording import explain as words

    print(words(read(options.config or default_path())))
    return OK


def run(options: argparse.Namespace) -> int:
    from pathlib import Path

    words = options.script
    at = next((at for at, word in enumerate(words) if word.endswith(".py")), len(words))
    code = check(argparse.Namespace(config=options.config, flags=words[:at], **dict.fromkeys(OF_CHECK)))
    if code:
        return code
    if not words:
        raise ConfigError("script", None, phrase("give the script to launch, after the config"))
    if at < len(words) and not Path(words[at]).is_file():
        raise ConfigError("script", words[at], phrase("there is no such file"))
    from . import handover

    sys.stdout.flush()
    return handover.run(options.config, words)
