"""Whatever a file, a flag or a model's config holds: one clear sentence and an exit code, never a traceback."""

import json
import os
import shlex
import stat
import subprocess
import sys
import time

import pytest

from mudarrib.launch import ConfigError, parse, read
from mudarrib.launch.cli import main

GOOD = "distributed_type: MULTI_GPU\nnum_processes: 2\n"
LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
UNREADABLE = {
    "empty": b"",
    "only a comment": b"# nothing\n",
    "a list": b"- a\n",
    "a word": b"FSDP\n",
    "binary": bytes(range(256)),
    "zeros": b"\0" * 100,
    "UTF-16": GOOD.encode("utf-16"),
    "Latin-1": "# für zwei\n".encode("latin-1") + GOOD.encode(),
    "a tab": b"a: 1\n\tb: 2\n",
    "an open quote": b"a: 'x\n",
    "an unknown tag": b"a: !!python/object/apply:os.system ['true']\n",
    "a tag that does not fit": b"a: !!bool maybe\n",
    "another": b"a: !!int x\n",
    "a third": b"a: !!timestamp x\n",
    "no such day": b"a: 2024-13-45\n",
    "no such anchor": b"a: *b\n",
    "a list as a key": b"? [a]\n: b\n",
    "two documents": b"a: 1\n---\nb: 2\n",
    "nested too deep": b"a: " + b"[" * 5000 + b"]" * 5000,
    "holds itself": b"a: &a {b: *a}\n",
    "a billion laughs": LAUGHS.encode(),
    "huge": b"a: 1\n" * 400_000,
}


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("command", ["check", "explain", "run"])
def test_a_file_that_is_no_config(tmp_path, capsys, command, name):
    path = tmp_path / "c.yaml"
    path.write_bytes(UNREADABLE[name])
    began = time.monotonic()
    assert main([command, str(path), *(["s.py"] if command == "run" else [])]) == 2
    assert time.monotonic() - began < 20
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and str(path) in said.err and not said.out
    assert path.read_bytes() == UNREADABLE[name]


STRANGE = {
    "a mark of bytes": "\ufeff" + GOOD,
    "carriage returns": GOOD.replace("\n", "\r\n"),
    "an anchor": "shared: &shared {fsdp_version: 2}\ndistributed_type: FSDP\nnum_processes: 2\nfsdp_config: *shared\n",
    "a merge": "x: &x {distributed_type: MULTI_GPU}\n<<: *x\nnum_processes: 2\n",
    "keys of all kinds": "1: a\nnull: b\n2.5: c\ntrue: d\n2024-01-01: e\n? ''\n: f\n" + GOOD,
    "keys of all kinds in sections": "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {1: a, null: b, '': c, true: 3}\n",
    "dots": "a.b.c: 1\n.: 2\n" + GOOD,
    "values of all kinds": "\n".join(f"{key}: 2024-01-01" for key in ("mixed_precision", "num_processes", "gpu_ids")) + "\n",
    "lists": "\n".join(f"{key}: [1]" for key in ("distributed_type", "mixed_precision", "gpu_ids", "machine_rank", "fp16"))
    + "\nrdzv_backend: {a: 1}\ncompute_environment: [x]\nmain_process_ip: {}\nuse_cpu: []\ndynamo_backend: [a]\n",
    "lists in sections": "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {zero_stage: [3], "
    "offload_param_device: {}, gradient_clipping: [], deepspeed_config_file: [a]}\nparallelism_config: {parallelism_config_tp_size: []}\n",
    "lists in FSDP": "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_version: [2], fsdp_sharding_strategy: {}, "
    "fsdp_auto_wrap_policy: [], fsdp_transformer_layer_cls_to_wrap: [A, B], fsdp_offload_params: []}\n",
    "huge numbers": f"distributed_type: MULTI_GPU\nnum_processes: {'9' * 400}\nmain_process_port: {'9' * 400}\nnum_machines: .inf\n"
    "machine_rank: .nan\n",
    "not ours": "name: ci\non: push\njobs: {build: {steps: []}}\n",
    "Arabic": "distributed_type: MULTI_GPU\nnum_processes: ٢\nمفتاح: قيمة\n",
    "braces": "distributed_type: '{x}'\n'{y}': '{0}'\nmixed_precision: '{}'\n",
}  # fmt: skip


@pytest.mark.parametrize("lang", ["en", "ar"])
@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_config_is_checked_explained_and_mended(tmp_path, capsys, name, lang):
    path = tmp_path / "c.yaml"
    path.write_text(STRANGE[name], encoding="utf-8", newline="")
    for words in (["check"], ["check", "--json"], ["explain"], ["check", "--fix"]):
        assert main(["--lang", lang, *words, str(path)]) in (0, 1)
    assert capsys.readouterr().err == ""
    read(path)


def test_right_files_in_strange_clothes_are_right(tmp_path):
    for name in ("a mark of bytes", "carriage returns"):
        path = tmp_path / "c.yaml"
        path.write_text(STRANGE[name], encoding="utf-8", newline="")
        assert main(["check", str(path)]) == 0


def test_a_mend_keeps_line_ends_marks_links_and_permissions(tmp_path):
    path, link = tmp_path / "c.yaml", tmp_path / "link.yaml"
    path.write_bytes(b"\xef\xbb\xbfdistributed_type: ddp # which\r\nnum_processes: '2'\r\nfp16: true\r\n")
    path.chmod(0o600)
    link.symlink_to(path)
    assert main(["check", str(link), "--fix"]) == 0
    assert path.read_bytes() == (
        b"\xef\xbb\xbfmixed_precision: fp16\r\ndistributed_type: MULTI_GPU # which\r\nnum_processes: 2\r\n"
    )
    assert link.is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_json_is_read_written_and_mended_as_json(tmp_path, capsys):
    path = tmp_path / "c.json"
    assert main(["new", "fsdp2", "-o", str(path), "num_processes=8"]) == 0
    assert json.loads(path.read_text())["num_processes"] == 8
    wrong = {
        "distributed_type": "fsdp",
        "num_processes": "8",
        "fp16": True,
        "fsdp_config": {"fsdp_offload_param": False},
    }
    path.write_text(json.dumps(wrong, indent="\t"))
    capsys.readouterr()
    assert main(["check", str(path)]) == 1
    assert f"{path}:2:2: K004" in capsys.readouterr().out
    assert main(["check", str(path), "--fix"]) == 0
    assert json.loads(path.read_text()) == {
        "mixed_precision": "fp16", "distributed_type": "FSDP", "num_processes": 8,
        "fsdp_config": {"fsdp_version": 2, "fsdp_offload_params": False},
    }  # fmt: skip
    path.write_text("distributed_type: MULTI_GPU\n")
    assert main(["check", str(path)]) == 2
    assert "not JSON" in capsys.readouterr().err, "accelerate reads a file of that name as JSON"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
def test_what_may_not_be_read_or_written_is_said(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text("distributed_type: ddp\nnum_processes: 2\n")
    path.chmod(0)
    assert main(["check", str(path)]) == 2 and "permission" in capsys.readouterr().err
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    assert main(["check", str(path), "--fix"]) == 2 and "permission" in capsys.readouterr().err
    tmp_path.chmod(0o700)


def test_where_nothing_can_be_is_said(tmp_path, capsys):
    (tmp_path / "file").write_text(GOOD)
    inside = str(tmp_path / "file" / "c.yaml")
    for words in (["check", inside], ["check", str(tmp_path)], ["check", "\0"], ["new", "ddp", "-o", inside],
                  ["new", "ddp", "-o", str(tmp_path), "--yes"], ["new", "ddp", "-o", str(tmp_path)],
                  ["new", "ddp", "-o", "\0"], ["new", "ddp", "-o", "x" * 5000], ["check", "x" * 5000],
                  ["check", str(tmp_path / "file"), "--args", inside], ["check", str(tmp_path / "file"), "--args", "\0"],
                  ["check", str(tmp_path / "file"), "--model", inside]):  # fmt: skip
        assert main(words) == 2, words
        assert capsys.readouterr().err.count("\n") == 1, words


@pytest.mark.parametrize(
    "words",
    [[], ["chek"], ["check", "--fixx"], ["check", "a", "b"], ["new"], ["run"], ["--lang", "fr", "check"],
     ["plan"], ["plan", "--model", "x"], ["plan", "--model", "x", "--gpu-memory", "-1GB"],
     ["plan", "--model", "x", "--gpu-memory", "80GB", "--gpus", "1.5"]],
)  # fmt: skip
def test_words_that_are_no_command_end_with_2_and_the_usage(capsys, words):
    with pytest.raises(SystemExit) as ended:
        main(words)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.startswith("usage: ") and "error: " in said.splitlines()[-1]


@pytest.mark.parametrize(
    "word", ["", "=", "=x", "a=b", "num_processes", "num_processes=", "a.b=1", "--=1", "kind=ddp", "x y=1"]
)
def test_words_that_are_no_key_and_value(capsys, word):
    try:
        code = main(["new", "ddp", "-o", "-", word])
    except SystemExit as ended:
        code = ended.code
    said = capsys.readouterr()
    assert code == 2 and said.err and not said.out, "nothing is written"


LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 512,
}  # fmt: skip
MODELS = {
    "nothing": "",
    "no JSON": "{",
    "a list": "[]",
    "null": "null",
    "no kind": "{}",
    "an unknown kind": '{"model_type": "nobody"}',
    "a kind that is none": '{"model_type": ["llama"]}',
    "a kind of several": '{"model_type": "llava", "text_config": {}}',
    "incomplete": '{"model_type": "llama"}',
    "too deep": "[" * 100_000,
    "a path as a kind": '{"model_type": "../../etc/passwd"}',
    **{
        f"{key} {value!r}": json.dumps({**LLAMA, key: value})
        for key, value in [
            ("hidden_size", 0), ("hidden_size", -4), ("hidden_size", "64"), ("hidden_size", None), ("hidden_size", 1.5),
            ("hidden_size", [64]), ("num_attention_heads", 7), ("num_attention_heads", 0), ("num_hidden_layers", True),
            ("num_key_value_heads", 0), ("vocab_size", {}), ("max_position_embeddings", "long"), ("head_dim", -1),
            ("num_hidden_layers", 0),
        ]
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_models_config_that_is_none(tmp_path, capsys, name):
    (tmp_path / "config.json").write_text(MODELS[name])
    assert main(["plan", "--model", str(tmp_path), "--gpu-memory", "8GB"]) == 2, capsys.readouterr().out
    assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "c.yaml").write_text(GOOD)
    assert main(["check", str(tmp_path / "c.yaml"), "--model", str(tmp_path)]) in (0, 2)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--gpus", "1000000000"], 0),
        (["--nodes", "1000000000"], 0),
        (["--gpus", "0"], 2),
        (["--nodes", "-1"], 2),
        (["--batch", "1000000000000"], 1),
        (["--batch", str(10**400)], 2),
        (["--accumulation", "1000000000"], 0),
        (["--seq-len", "1000000000"], 2),
        (["--rank", "0"], 2),
        (["--gpu-memory", "80"], 0),
        (["--gpu-memory", "80GiB"], 0),
        (["--gpu-memory=-1GB"], 2),
        (["--gpu-memory", "1e3GB"], 2),
        (["--gpu-memory", "nan"], 2),
        (["--gpu-memory", ""], 2),
        (["--gpu-memory", "9" * 400 + "GB"], 2),
        (["--gpu-memory", "80 gigabytes"], 2),
        (["--reserve", "100GB"], 2),
        (["--reserve", "0"], 0),
        (["--cpu-memory", "0GB"], 2),
        (["--optimizer", ""], 2),
        (["--picture", "/proc/no/such.png"], 2),
        (["-o", "/proc/no/such.yaml"], 2),
    ],
)
def test_sizes_that_make_no_sense(tmp_path, capsys, words, code):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert main(["plan", "--model", str(tmp_path), "--gpu-memory", "8GB", *words]) == code
    assert capsys.readouterr().err.count("\n") == (code == 2)


def test_a_name_that_is_no_path_and_no_model(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    for name in ("", "nobody/nothing", "../..", "\0", "x" * 5000, "*", str(tmp_path)):
        assert main(["plan", "--model", name, "--gpu-memory", "8GB"]) == 2, name
        assert capsys.readouterr().err.count("\n") == 1


def test_nobody_reads():
    words, code = ["new", "ddp", "-o", "-"], 141
    ours = "from mudarrib.launch.cli import main; raise SystemExit(main())"
    for out in ("|true", ">/dev/full"):
        shell = f"sleep 0.2; {shlex.quote(sys.executable)} -c {shlex.quote(ours)} {shlex.join(words)} {out}"
        done = subprocess.run(["bash", "-o", "pipefail", "-c", shell], capture_output=True, text=True)
        assert done.returncode == (code if out == "|true" else 2)
        assert "Traceback" not in done.stderr and done.stderr.count("\n") == (out != "|true"), done.stderr


def test_laughs_are_not_written_out():
    with pytest.raises(ConfigError, match="nested too deep"):
        parse(LAUGHS)
