"""Keys that the version of accelerate that launches does not read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .. import keys
from ..config import Config
from ..phrases import phrase
from .base import rule

Findings = Iterator[dict[str, Any]]


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _given(config: Config, key: str) -> bool:
    section, _, name = key.rpartition(".")
    return name in (config.section(section) if section else config.values)


@rule("V001")
def too_new_a_key(config: Config) -> Findings:
    """A key that a later accelerate brought."""
    here = config.context.accelerate
    for key, since in keys.SINCE.items():
        if _given(config, key) and numbers(here) < numbers(since):
            yield {
                "key": key,
                "message": phrase(
                    "{key} is known from accelerate {since} on, here is {here}", key=key, since=since, here=here
                ),
                "consequence": phrase("a section is refused with the whole file, a key in a section is ignored."),
                "fix": phrase("pip install 'accelerate>={since}', or remove it", since=since),
            }


@rule("V002")
def too_old_a_key(config: Config) -> Findings:
    """A key that later versions of accelerate do not read any more."""
    here = config.context.accelerate
    for key, until in keys.UNTIL.items():
        if not _given(config, key) or numbers(here) <= numbers(until):
            continue
        new = keys.SUCCESSORS.get(key)
        nested = "." in key
        same = nested and new is not None and not _given(config, f"{key.rpartition('.')[0]}.{new}")
        yield {
            "key": key,
            "message": phrase(
                "{key} was read up to accelerate {until}, here is {here}", key=key, until=until, here=here
            ),
            "consequence": phrase("it is ignored without a word.") if nested else phrase("the whole file is refused."),
            "fix": phrase("rename it to {near}", near=new) if new else phrase("remove it"),
            "rename": new if same else None,
            "remove": nested and not same,
            "stops": not nested,
        }
