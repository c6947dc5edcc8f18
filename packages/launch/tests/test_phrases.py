"""The same sentences in Arabic: chosen by a flag or by the system, never mixed, and as exact."""

import json

import pytest

from mudarrib.launch import phrases
from mudarrib.launch.cli import main

WRONG = "distributed_type: MULTI_GPU\nnum_proceses: 2\nmixed_precision: fp61\n"


@pytest.fixture(autouse=True)
def english_again(monkeypatch):
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    yield
    phrases.use("en")


def said(tmp_path, capsys, *flags):
    path = tmp_path / "c.yaml"
    path.write_text(WRONG)
    assert main([*flags, "check", str(path), "--json"]) == 1
    return json.loads(capsys.readouterr().out)


def test_the_same_findings_in_two_languages(tmp_path, capsys, monkeypatch):
    english = said(tmp_path, capsys)
    arabic = said(tmp_path, capsys, "--lang", "ar")
    for name in ("code", "key", "value", "rename", "place"):
        assert [finding[name] for finding in english] == [finding[name] for finding in arabic]
    for one, other in zip(english, arabic, strict=True):
        for name in ("message", "consequence", "fix"):
            assert one[name].isascii() and any("\u0600" <= letter <= "\u06ff" for letter in other[name]), other[name]
    assert {finding["key"] for finding in arabic} == {"num_proceses", "num_processes", "mixed_precision"}
    monkeypatch.setenv("LANG", "ar_SA.UTF-8")
    assert said(tmp_path, capsys) == arabic, "the system's language"
    assert said(tmp_path, capsys, "--lang=en") == english, "the flag wins"


def test_a_language_that_nobody_speaks_here_is_english(monkeypatch):
    monkeypatch.setenv("LANG", "fr_FR.UTF-8")
    assert phrases.of_environment() == "en"


def test_help_and_errors_are_in_it_too(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--lang", "ar", "--help"])
    assert "كتابة ملف إعداد" in capsys.readouterr().out
    assert main(["--lang", "ar", "check", str(tmp_path / "nowhere.yaml")]) == 2
    assert "أعطِ مسار" in capsys.readouterr().err


def test_braces_in_a_value_are_left_alone():
    assert phrases.phrase("give {near}", near="{x}") == "give {x}"
