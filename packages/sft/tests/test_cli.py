"""The command: a YAML file or flags to a run, and what it would do shown before."""

import json
import subprocess
import sys

import numpy as np
import pytest

from mudarrib.sft.cli import flags, main, read
from mudarrib.sft.dry_run import histogram

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable:FutureWarning")


@pytest.fixture
def files(llama, tokenizer, chatml, sentences, tmp_path):
    """A model folder, a data file and a YAML file that names them."""
    llama().save_pretrained(tmp_path / "model")
    tokenizer(template=chatml).save_pretrained(tmp_path / "model")
    turns = [
        {"messages": [{"role": "user", "content": a}, {"role": "assistant", "content": b}]}
        for a, b in zip(sentences(30), sentences(30, 1))
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, turns)))
    (tmp_path / "run.yaml").write_text(
        f"model_name_or_path: {tmp_path / 'model'}\n"
        f"dataset_name: {tmp_path / 'rows.jsonl'}\n"
        f"output_dir: {tmp_path / 'out'}\n"
        "max_steps: 2\nmax_length: 48\npacking: true\nassistant_only_loss: yes\nlearning_rate: 1.0e-3\n"
        "logging_steps: 1\nreport_to: none\nuse_cpu: true\nmodel_init_kwargs: {attn_implementation: eager}\n"
    )
    return tmp_path


def test_a_yaml_file_becomes_a_run(files):
    main(["--config", str(files / "run.yaml")])
    assert (files / "out" / "model.safetensors").is_file() and (files / "out" / "tokenizer.json").is_file()


def test_flags_win_over_the_file(files):
    for given in (
        ["--config", str(files / "run.yaml"), "--max_steps", "7"],
        [str(files / "run.yaml"), "--max_steps", "7"],
    ):
        run, config = read(given)
        assert config.max_steps == 7 and config.packing and config.learning_rate == 1e-3
        assert config.model_init_kwargs == {"attn_implementation": "eager"} and not run.dry_run


def test_a_dry_run_shows_what_would_happen_and_trains_nothing(files, capsys):
    main(["--config", str(files / "run.yaml"), "--dry_run"])
    shown = capsys.readouterr().out
    assert "packed rows of 30 examples" in shown
    assert "«<s> user" in shown, "the masked part is marked"
    assert "Padding:" in shown and "Time: about" in shown and "█" in shown
    assert not (files / "out" / "model.safetensors").exists()


def test_a_dry_run_of_padded_batches_and_streams(files, capsys):
    for more in (["--no_packing"], ["--dataset_streaming", "--no_packing"]):
        main(["--config", str(files / "run.yaml"), "--dry_run", *more])
        shown = capsys.readouterr().out
        assert "[PAD]" not in shown and "«<s> user" in shown


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--dataset_name", "x", "--output_dir", "y"], "model_name_or_path"),
        (["--config", "nowhere.yaml"], "no such file"),
        (
            [
                "--model_name_or_path",
                "x",
                "--dataset_name",
                "x",
                "--output_dir",
                "y",
                "--load_in_4bit",
                "--load_in_8bit",
            ],
            "load_in",
        ),
    ],
)
def test_bad_arguments_end_the_command_with_a_line(given, named):
    with pytest.raises(SystemExit, match=named):
        main(given)


def test_yaml_values_as_flags():
    assert flags({"a": True, "b": [1, 2], "c": None, "d": {"x": 1}, "e": "words here"}) == [
        "--a", "true", "--b", "1", "2", "--d", '{"x": 1}', "--e", "words here",
    ]  # fmt: skip


def test_the_arguments_answer_without_torch():
    code = "import sys, mudarrib.sft.cli; from mudarrib.sft import SFTConfig; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_lists_in_the_file_reach_fields_that_take_commas():
    given = {"lora_target_modules": ["q_proj", "v_proj"], "lora_modules_to_save": ["lm_head"]}
    assert flags(given) == ["--lora_target_modules", "q_proj,v_proj", "--lora_modules_to_save", "lm_head"]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--dataset_name", "nowhere.jsonl"], "dataset_name = 'nowhere.jsonl': .*no such file"),
        (["--dataset_name", "{}/bad.jsonl"], "dataset_name = .*JSON parse error"),
        (["--dataset_name", "{}/empty.jsonl"], "dataset_name = .*empty.jsonl"),
        (["--model_name_or_path", "{}/nowhere"], "model = .*nowhere"),
        (["--dtype", "foo"], "dtype = 'foo'.*bfloat16"),
        (["--eval_strategy", "steps", "--eval_steps", "1"], "dataset_test_name = None"),
        (["--dataset_train_split", "validation"], "dataset_train_split = 'validation'"),
        (["--attn_implementation", "flex_attention"], "flex_attention.*sdpa"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_mistakes_end_the_command_with_a_line_before_training(files, more, named):
    (files / "bad.jsonl").write_text("{bad\n")
    (files / "empty.jsonl").write_text("")
    if "flex" in str(more):
        more = [*more, "--model_init_kwargs", "{{}}"]
    with pytest.raises(SystemExit, match=named):
        main(["--config", str(files / "run.yaml"), *(word.format(files) for word in more)])
    assert not (files / "out" / "model.safetensors").exists()


def test_every_length_is_in_the_histogram():
    for lengths in ([7], [3, 3, 4], list(range(1, 100)), [5, 500]):
        counts = [int(line.rsplit(" ", 1)[1]) for line in histogram(np.array(lengths)).splitlines()]
        assert sum(counts) == len(lengths) and len(counts) <= 13


def test_a_dry_run_of_a_packed_stream_counts_examples(files, capsys):
    main(["--config", str(files / "run.yaml"), "--dry_run", "--dataset_streaming"])
    assert "Tokens of an example (of 30)" in capsys.readouterr().out
