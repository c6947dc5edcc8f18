"""The pictures of a run."""

import xml.etree.ElementTree as xml

import pytest
from tiny import Regressor, Rows, arguments

from mudarrib.core_loop import ArgumentError, Trainer
from mudarrib.core_loop.report import write_report
from mudarrib.core_loop.report.cli import main
from mudarrib.core_loop.report.curves import panels, read_history

HISTORY = [
    {"loss": 2.0, "learning_rate": 0.1, "grad_norm": 3.0, "epoch": 0.5, "step": 1},
    {"loss": 1.0, "learning_rate": 0.05, "grad_norm": 2.0, "epoch": 1.0, "step": 2},
    {"eval_loss": 1.5, "eval_accuracy": 0.7, "eval_runtime": 0.1, "eval_samples_per_second": 9.0, "step": 2},
    {"train_loss": 1.5, "train_runtime": 3.0, "total_flos": 1.0, "step": 2},
]


def test_each_number_has_its_chart():
    charts = {panel.title: panel for panel in panels({"run": HISTORY})}
    assert list(charts) == ["loss", "learning rate", "accuracy", "gradient norm", "throughput"]
    assert charts["loss"].lines == {"loss": [(1, 2.0), (2, 1.0)], "eval_loss": [(2, 1.5)]}


def test_a_picture_and_a_page_that_needs_nothing_else(tmp_path):
    picture, page = write_report(HISTORY, tmp_path, title="A <run>")
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 10_000
    text = page.read_text()
    assert text.count("<svg") == 5 and "A &lt;run&gt;" in text and "eval_accuracy" in text
    for outside in ("src=", 'href="http', "@import", "<script"):
        assert outside not in text
    for svg in text.split("<svg")[1:]:
        xml.fromstring("<svg" + svg.split("</svg>")[0] + "</svg>")


def test_several_runs_are_laid_over_each_other(tmp_path):
    for name in ("a", "b"):
        args = arguments(tmp_path / name, logging_steps=1, save_strategy="steps", save_steps=2)
        Trainer(model=Regressor(), args=args, train_dataset=Rows()).train()
    assert main([str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(tmp_path / "both")]) == 0
    text = (tmp_path / "both" / "report.html").read_text()
    assert f"{tmp_path / 'a'}: loss" in text and f"{tmp_path / 'b'}: loss" in text


def test_what_cannot_be_read_is_said(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "folder with checkpoints" in capsys.readouterr().err
    (tmp_path / "trainer_state.json").write_text("{}")
    with pytest.raises(ArgumentError, match="KeyError"):
        read_history(tmp_path)
    with pytest.raises(ArgumentError, match="nothing was logged"):
        write_report([], tmp_path)


def test_report_to_report(tmp_path):
    args = arguments(tmp_path, logging_steps=1, report_to="report", run_name="curves")
    Trainer(model=Regressor(), args=args, train_dataset=Rows()).train()
    assert "curves" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "report.png").is_file()
