"""Rules, what they find, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from .. import keys
from ..config import Config, Place

Found = Iterator["Finding"]
Rule = Callable[[Config], Found]
RULES: dict[str, Rule] = {}
THEMES = ("keys", "machines", "precision", "fsdp", "deepspeed", "parallelism", "versions", "model", "training", "here")


@dataclass(frozen=True)
class Finding:
    """Something wrong.

    Attributes:
        code: The rule's code.
        key: The dotted key it is about.
        message: What is wrong.
        consequence: What happens if the config is used.
        fix: What to do.
        value: What to set the key to, where that is clear; `...` where it is not.
        rename: What to call the key, where it is misspelt.
        remove: Whether the key is to go.
        add: Dotted keys to put in, with their values.
        stops: Whether a run of it makes no sense; else it is said and no more.
        place: Line and column in the file, if known.
    """

    code: str
    key: str
    message: str
    consequence: str
    fix: str
    value: Any = ...
    rename: str | None = None
    remove: bool = False
    add: dict[str, Any] = field(default_factory=dict)
    stops: bool = True
    place: Place | None = None


def rule(code: str) -> Callable[[Callable[[Config], Iterator[dict[str, Any]]]], Rule]:
    """Make a rule of a generator of findings, each a dict without code and place."""

    def register(function: Callable[[Config], Iterator[dict[str, Any]]]) -> Rule:
        def run(config: Config) -> Found:
            for found in function(config):
                yield Finding(code=code, place=config.places.get(found["key"]), **found)

        run.__doc__ = function.__doc__
        RULES[code] = run
        return run

    return register


def check(config: Config) -> list[Finding]:
    """Everything that the rules find, in the order of the file."""
    for theme in THEMES:
        import_module(f".{theme}", __package__)
    elsewhere = config.get("compute_environment") == "AMAZON_SAGEMAKER"
    read = with_prefixes(config)
    rules = {"K011": RULES["K011"]} if elsewhere else RULES
    found = [finding for code, run in rules.items() for finding in run(config if code == "K012" else read)]
    return sorted(found, key=lambda finding: (finding.place or (0, 0), finding.code))


def without_prefix(section: str, key: str) -> str | None:
    """The known key that accelerate makes of one without the section's prefix; None if there is none."""
    whole = f"{section.removesuffix('_config')}_{key}"
    takes = section in ("fsdp_config", "fp8_config", "dynamo_config") and key not in keys.SECTIONS[section]
    return whole if takes and whole in keys.SECTIONS[section] else None


def with_prefixes(config: Config) -> Config:
    """The config as accelerate reads it: keys of a section by their whole names."""
    values, places = dict(config.values), dict(config.places)
    for section in keys.SECTIONS:
        if config.section(section):
            names = {key: without_prefix(section, key) or key for key in config.section(section)}
            values[section] = {names[key]: value for key, value in config.section(section).items()}
            for key, name in names.items():
                if f"{section}.{key}" in places:
                    places[f"{section}.{name}"] = places[f"{section}.{key}"]
    return replace(config, values=values, places=places)


def nearest(word: Any, known: Sequence[str]) -> str | None:
    """The known word that is most like this one, if any is."""
    import difflib

    near = difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    return near[0] if near else None
