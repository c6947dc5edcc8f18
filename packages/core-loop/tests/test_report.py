"""The pictures of a run."""

import json
import re
import subprocess
import sys

import pytest
from tiny import Regressor, Rows, arguments

from mudarrib.core_loop import ArgumentError, Trainer
from mudarrib.core_loop.report import write_report
from mudarrib.core_loop.report.cli import main
from mudarrib.core_loop.report.curves import Point, panels, read_history, thinned
from mudarrib.core_loop.report.write import short_names

HISTORY = [
    {"loss": 2.0, "learning_rate": 0.1, "grad_norm": 3.0, "epoch": 0.5, "step": 1},
    {"loss": 1.0, "learning_rate": 0.05, "grad_norm": 2.0, "epoch": 1.0, "step": 2},
    {"eval_loss": 1.5, "eval_accuracy": 0.7, "eval_runtime": 0.1, "eval_samples_per_second": 9.0, "step": 2},
    {"train_loss": 1.5, "train_runtime": 3.0, "total_flos": 1.0, "step": 2},
]


def numbers(page):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page.read_text()).group(1))


def curves(history):
    charts = panels({"run": history})
    return {c.title: {line.name: [(p.step, p.value) for p in line.points] for line in c.lines} for c in charts}


def test_each_number_has_its_chart():
    charts = curves(HISTORY)
    assert list(charts) == ["loss", "learning rate", "accuracy", "gradient norm", "samples per second"]
    assert charts["loss"] == {"loss": [(1, 2.0), (2, 1.0)], "eval_loss": [(2, 1.5)]}


def test_speed_and_memory_come_from_the_growing_log():
    history = [
        {"loss": 1.0, "step": 10, "time": 100.0, "memory_bytes": 5},
        {"eval_loss": 1.0, "eval_runtime": 4.0, "step": 10, "time": 104.0, "memory_bytes": 6},
        {"loss": 0.9, "step": 20, "time": 109.0, "memory_bytes": 6},
    ]
    charts = curves(history)
    assert charts["steps per second"] == {"steps_per_second": [(20, 2.0)]}, "ten steps in nine seconds less four"
    assert charts["memory"]["memory_bytes"][0] == (10, 5)


def test_a_long_run_is_thinned_and_keeps_its_peaks():
    points = [Point(float(step), None, None, 1.0) for step in range(100_000)]
    points[31_415] = Point(31_415.0, None, None, 9.0)
    points[62_831] = Point(62_831.0, None, None, float("nan"))
    kept = thinned(points)
    assert len(kept) <= 1502 and kept[-1] == points[-1]
    assert points[31_415] in kept and points[62_831] in kept
    assert [point.step for point in kept] == sorted(point.step for point in kept)


def test_a_picture_and_a_page_that_needs_nothing_else(tmp_path):
    picture, page = write_report(HISTORY, tmp_path, title="A <run> </script>")
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 10_000
    text = page.read_text()
    assert len(numbers(page)["panels"]) == 5 and "eval_accuracy" in text
    assert text.count("A &lt;run&gt; &lt;/script&gt;") == 2 and "<!-- " not in text
    for outside in (" src=", 'href="http', "@import", "url(", "import("):
        assert outside not in text


def test_several_runs_are_laid_over_each_other(tmp_path):
    for name in ("a", "b"):
        args = arguments(tmp_path / name, logging_steps=1, save_strategy="steps", save_steps=2)
        Trainer(model=Regressor(), args=args, train_dataset=Rows()).train()
    assert main([str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(tmp_path / "both")]) == 0
    data = numbers(tmp_path / "both" / "report.html")
    assert data["runs"] == ["a", "b"]
    (loss,) = [panel for panel in data["panels"] if panel["title"] == "loss"]
    assert [(line["run"], len(line["points"])) for line in loss["lines"]] == [("a", 4), ("b", 4)]
    assert {"memory", "steps per second"} <= {panel["title"] for panel in data["panels"]}


def test_a_checkpoint_of_the_peers_is_read_from_its_state_alone(tmp_path):
    (tmp_path / "checkpoint-9").mkdir()
    (tmp_path / "checkpoint-10").mkdir()
    for step in (9, 10):
        state = {"log_history": [{"loss": float("nan"), "step": step, "epoch": 1.0}], "global_step": step}
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps(state))
    assert read_history(tmp_path)[0]["step"] == 10
    _, page = write_report(tmp_path, tmp_path / "out")
    (panel,) = numbers(page)["panels"]
    assert panel["lines"][0]["points"] == [[10, 1, None, None]]


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    (tmp_path / "log_history.jsonl").write_text('{"loss": 1.0, "step": 1}\n{"loss": 0.')
    assert read_history(tmp_path) == [{"loss": 1.0, "step": 1}]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["runs/a"], ["a"]),
        (["runs/a/trainer_state.json", "runs/b/trainer_state.json"], ["a", "b"]),
        (["runs/x/checkpoint-5", "runs/y/checkpoint-5"], ["x/checkpoint-5", "y/checkpoint-5"]),
        (["runs/a", "runs/a"], ["runs/a (1)", "runs/a (2)"]),
    ],
)
def test_runs_are_called_by_what_tells_them_apart(paths, names):
    assert short_names(paths) == names


def state_of(folder, entries):
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": entries}))
    return str(folder)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("trainer_state.json", None, "no such file or folder"),
        ("trainer_state.json", b"{}", "not the JSON that a trainer writes"),
        ("trainer_state.json", b'{"log_history": null}', "not the JSON that a trainer writes"),
        ("trainer_state.json", b'{"log_history": [1]}', "not the JSON that a trainer writes"),
        ("trainer_state.json", b"[1, 2]", "not the JSON that a trainer writes"),
        ("trainer_state.json", b"[" * 100_000, "not the JSON that a trainer writes"),
        ("trainer_state.json", b"\xff\xfe\x00", "not the JSON that a trainer writes"),
        ("log_history.jsonl", b'{"loss": 1.0}\nrubbish\n', "not the JSON that a trainer writes"),
        ("log_history.jsonl", b"[1]\n", "not the JSON that a trainer writes"),
        ("log_history.jsonl", b"", "nothing was logged"),
        ("trainer_state.json", b'{"log_history": []}', "nothing was logged"),
        ("trainer_state.json", b'{"log_history": [{"loss": "0.5", "step": 1}]}', "nothing was logged"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path, capsys, name, content, said):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert main([str(tmp_path / name), "-o", str(tmp_path / "out")]) == 2
    written = capsys.readouterr()
    assert said in written.err and name in written.err and written.out == ""
    assert written.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_without_history_or_one_that_cannot_be_written_is_said(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "folder with checkpoints" in capsys.readouterr().err
    run = state_of(tmp_path / "run", HISTORY)
    (tmp_path / "taken").write_text("")
    assert main([run, "-o", str(tmp_path / "taken")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    with pytest.raises(ArgumentError, match="nothing was logged"):
        write_report([], tmp_path)


def test_numbers_that_have_no_place_are_left_out(tmp_path):
    history = [
        {"loss": 3.0, "step": 1, "epoch": None},
        {"loss": 10**400, "step": 2},
        {"loss": float("nan"), "step": 3, "time": "noon"},
        {"loss": 2.0, "step": float("nan")},
        {"loss": 1.0, "step": None},
        {"loss": 0.5, "eval_runtime": "long", "step": 10**400},
    ]
    _, page = write_report([state_of(tmp_path / "run", history)], tmp_path)
    (loss,) = numbers(page)["panels"]
    assert [point[0] for point in loss["lines"][0]["points"]] == [1, 3, 3, 4, 5], "a log without a step by its number"
    assert loss["lines"][0]["points"][1][3] is None
    assert "3 steps" in page.read_text()


def test_a_run_without_logs_beside_others_is_named(tmp_path, caplog):
    runs = [state_of(tmp_path / name, history) for name, history in (("تجربة", HISTORY), ("begun", []))]
    _, page = write_report(runs, tmp_path)
    assert "begun: nothing was logged in it yet" in caplog.text
    assert "تجربة" in page.read_text()


def test_report_to_report(tmp_path):
    args = arguments(tmp_path, logging_steps=1, report_to="report", run_name="curves")
    Trainer(model=Regressor(), args=args, train_dataset=Rows()).train()
    assert "curves" in (tmp_path / "report.html").read_text()
    assert "memory" in {panel["title"] for panel in numbers(tmp_path / "report.html")["panels"]}
    assert (tmp_path / "report.png").is_file()


def test_a_run_ends_well_where_pictures_cannot_be_written(tmp_path, caplog):
    (tmp_path / "report.png").mkdir()
    args = arguments(tmp_path, logging_steps=1, report_to="report")
    assert Trainer(model=Regressor(), args=args, train_dataset=Rows()).train().global_step
    assert "No pictures of this run" in caplog.text


def test_pictures_without_matplotlib_are_refused_before_the_model_is_touched(tmp_path):
    script = """
import sys
sys.modules["matplotlib"] = None
import torch
from mudarrib.core_loop import Trainer, TrainingArguments
Trainer(torch.nn.Linear(1, 1), TrainingArguments(sys.argv[1], report_to="report"))
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    assert 'pip install "mudarrib-core-loop[report]"' in done.stderr
