"""The catalogues of mudarrib-launch: sentences out of its source, translations kept, compiled for gettext.

Run by `tools/messages` in the environment, which has Babel; a test runs the check.
"""

from __future__ import annotations

import argparse
import string
from io import BytesIO
from pathlib import Path

from babel.messages import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "packages" / "launch" / "src" / "mudarrib" / "launch"
DOMAIN = "mudarrib-launch"


def sentences() -> list[str]:
    """All that `phrase` and `later` are called with."""
    found = extract_from_dir(PACKAGE, [("**.py", "python")], keywords={"phrase": None, "later": None})
    return sorted({str(message) for _, _, message, _, _ in found})


def names(template: str) -> list[str]:
    """What a sentence fills in."""
    try:
        return sorted(f"{name}!{kind}" for _, name, _, kind in string.Formatter().parse(template) if name is not None)
    except ValueError:
        return []


def updated(old: Catalog) -> Catalog:
    """The catalogue with the sentences of now; what is not translated yet stays empty."""
    new = Catalog(locale=old.locale, domain=DOMAIN, project=DOMAIN, fuzzy=False, creation_date=old.creation_date)
    for sentence in sentences():
        new.add(sentence, old[sentence].string if sentence in old else "")
    new.revision_date = old.revision_date
    return new


def faults(catalogue: Catalog) -> list[str]:
    """What is not translated, or fills in other things than the sentence."""
    found = []
    for message in catalogue:
        if message.id and not message.string:
            found.append(f"not translated: {message.id}")
        elif message.id and names(str(message.id)) != names(str(message.string)):
            found.append(f"other names in braces: {message.id} -> {message.string}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    told = []
    for path in sorted(PACKAGE.glob(f"locale/*/LC_MESSAGES/{DOMAIN}.po")):
        with path.open("rb") as file:
            old = read_po(file, locale=path.parent.parent.name)
        new = updated(old)
        text, compiled = BytesIO(), BytesIO()
        write_po(text, new, width=120, sort_output=True)
        write_mo(compiled, new)
        told += [f"{path.parent.parent.name}: {fault}" for fault in faults(new)]
        if not check:
            path.write_bytes(text.getvalue())
            path.with_suffix(".mo").write_bytes(compiled.getvalue())
        elif path.read_bytes() != text.getvalue() or path.with_suffix(".mo").read_bytes() != compiled.getvalue():
            told.append(f"{path.relative_to(ROOT)} is not current: tools/messages")
    print("\n".join(told) or "every sentence is translated")
    raise SystemExit(bool(told))


if __name__ == "__main__":
    main()
