"""The page of all rules: each with a wrong example from the tests, and what the rule says of it.

Run by `tools/rules` in the environment; a test compares it with `packages/launch/docs/rules.md`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import socket
import tempfile
from pathlib import Path
from typing import Any

import yaml

from mudarrib.launch import Config, check, new, read, write
from mudarrib.launch.context import Context
from mudarrib.launch.rules import RULES

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "packages" / "launch" / "docs" / "rules.md"
TESTS = ROOT / "packages" / "launch" / "tests" / "test_rules.py"
THEMES = {
    "K": "Keys and kinds", "M": "Machines and processes", "P": "Precision", "F": "FSDP", "D": "DeepSpeed",
    "R": "Parallelism and fp8", "V": "Versions of accelerate", "L": "The model (`--model`)",
    "T": "The training arguments (`--args`)", "H": "The machine that launches (`run`)",
}  # fmt: skip
HEAD = """# Rules

What `mudarrib-launch check` looks at, each with a config that it finds. `--fix` mends what is marked so; what is marked
as a note does not stop a run. Rules of the last three themes need `--model`, `--args` or `run`. Written by
`tools/rules`.
"""


def examples() -> dict[str, Config]:
    """The first wrong config of each rule in the tests, and those that need files beside them."""
    spec = importlib.util.spec_from_file_location("wrong", TESTS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Config] = {}
    for code, config in module.WRONG:
        found.setdefault(code, config)
    return found


def with_files(folder: Path) -> dict[str, Config]:
    """Wrong configs that come with a file or a port."""
    path = folder / "config.yaml"
    write(new("deepspeed"), path)
    missing = read(path)
    found = {"D006": list(check(missing))}
    file = folder / "ds_config.json"
    file.write_text("{")
    found["D007"] = list(check(read(path)))
    settings = {"train_batch_size": 100, "bf16": {"enabled": True}, "optimizer": {"type": "Lamb"}}
    file.write_text(json.dumps(settings))
    training = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "bf16": False, "optim": "sgd"}
    config = read(path)
    config.context = Context(training=training)
    for finding in check(config):
        found.setdefault(finding.code, [finding])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 29517))
        taken.listen()
        write(new("cpu", main_process_port=29517), folder / "port.yaml")
        port = read(folder / "port.yaml")
        found["M012"] = list(check(port))
    configs = {"D006": missing, "D007": missing, "T004": config, "T005": config, "T006": config, "M012": port}
    return {code: (configs[code], found[code][0]) for code in configs}  # type: ignore[misc]  # a pair for each


def shown(config: Config, key: str) -> str:
    """The part of a config that a finding is about, as YAML."""
    section, _, name = key.rpartition(".")
    if section:
        values: Any = {section: {name: config.section(section).get(name)}}
    else:
        values = {key: config.get(key)}
    if config.get(key) is None and key not in config.values and not section:
        values = {"distributed_type": config.get("distributed_type")} if key != "distributed_type" else {}
    return yaml.safe_dump(values, sort_keys=False, default_flow_style=False).strip() if values else "# nothing"


def entry(code: str, config: Config, finding: Any) -> str:
    mends = finding.value is not ... or finding.rename or finding.remove or finding.add
    marks = [*(["`--fix`"] if mends else []), *([] if finding.stops else ["note"])]
    said = f"{finding.message}\n\n{finding.consequence}".replace(str(config.path and config.path.parent), "")
    asked = config.context.training
    beside = f"with arguments `{json.dumps(asked)}`\n\n" if asked else ""
    if config.context.model is not None:
        beside = f"with a model of kind `{config.context.model.kind}`\n\n"
    if code.startswith("V"):
        beside = f"with accelerate {config.context.accelerate}\n\n"
    doc = (RULES[code].__doc__ or "").strip()
    title = f"### {code}" + (f" ({', '.join(marks)})" if marks else "")
    return f"{title}\n\n{doc}\n\n```yaml\n{shown(config, finding.key)}\n```\n\n{beside}{said}\n\nFix: {finding.fix}.\n"


def page() -> str:
    found = examples()
    check(new("ddp"))
    with tempfile.TemporaryDirectory() as name:
        pairs: dict[str, Any] = dict(with_files(Path(name)))
        for code, config in found.items():
            pairs.setdefault(code, (config, next(item for item in check(config) if item.code == code)))
        lines = [HEAD]
        for letter, theme in THEMES.items():
            codes = sorted(code for code in RULES if code.startswith(letter))
            lines += [f"\n## {theme}\n", *(entry(code, *pairs[code]) for code in codes)]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    if parser.parse_args().check:
        if PAGE.read_text(encoding="utf-8") != page():
            raise SystemExit(f"{PAGE.relative_to(ROOT)} is not what the rules say: tools/rules")
    else:
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
