"""The same sentences in Arabic: chosen by a flag or by the system, never mixed, and as exact."""

import json
import re

import pytest

from mudarrib.launch import check, memory, phrases, read, usage
from mudarrib.launch.cli import main

GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
WRONG = "distributed_type: MULTI_GPU\nnum_proceses: 2\nmixed_precision: fp61\n"


@pytest.fixture(autouse=True)
def no_language_of_the_system(monkeypatch):
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)


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


def test_a_command_leaves_the_language_of_its_caller_alone(tmp_path, capsys):
    said(tmp_path, capsys, "--lang", "ar")
    assert all(finding.message.isascii() for finding in check(read(tmp_path / "c.yaml")))


def test_a_language_that_nobody_speaks_here_is_english(monkeypatch):
    monkeypatch.setenv("LANG", "fr_FR.UTF-8")
    assert phrases.of_environment() == "en"


def test_help_and_errors_are_in_it_too(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--lang", "ar", "--help"])
    assert "كتابة ملف إعداد" in capsys.readouterr().out
    assert main(["--lang", "ar", "check", str(tmp_path / "nowhere.yaml")]) == 2
    assert "أعطِ مسار" in capsys.readouterr().err


# Words that are no part of a name, a flag or a path.
ENGLISH = re.compile(r"(?<![\w\-+./=])[a-z]{4,}(?![\w\-+./=])")


def test_no_english_is_left_in_a_plan_and_in_help(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(GPT2))
    for gpus, size, code in (("8", "80GB", 0), ("2", "2GB", 1)):
        arguments = ["--model", str(tmp_path), "--gpus", gpus, "--gpu-memory", size, "--seq-len", "1024"]
        assert main(["--lang", "ar", "plan", *arguments, "--cpu-memory", "1GB"]) == code
        said = capsys.readouterr().out
        assert set(ENGLISH.findall(said)) <= {"adamw", "adalomo"}, said
    for command in ("new", "check", "explain", "plan", "run"):
        with pytest.raises(SystemExit):
            main(["--lang", "ar", command, "--help"])
        said = capsys.readouterr().out
        assert not {"usage", "options", "show", "help message", "positional"} & set(re.findall(r"[a-z ]+", said)), said


def test_names_that_come_through_variables_are_translated():
    moments = (memory.LOSS, memory.FORWARD, memory.HEAD, memory.LAST, memory.LAST_DONE, memory.BACKWARD, memory.STEP)
    with phrases.speaking("ar"):
        for name in (*memory.PARTS, *moments, "total", "host", "simulated", *usage.WORDS):
            assert phrases.phrase(name) != name


def test_the_system_s_reasons_are_in_it_too(tmp_path, capsys):
    assert main(["--lang", "ar", "check", str(tmp_path)]) == 2
    assert main(["--lang", "ar", "check", str(tmp_path / "no")]) == 2
    assert not ENGLISH.findall(capsys.readouterr().err.replace(str(tmp_path), "").replace("mudarrib-launch", ""))


def test_braces_in_a_value_are_left_alone():
    assert phrases.phrase("give {near}", near="{x}") == "give {x}"
