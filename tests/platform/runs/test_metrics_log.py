"""metrics.jsonl survives kills, and a resume repeats nothing in it."""

from __future__ import annotations

from pathlib import Path

from ebclab.runs.metrics_log import MetricsLog


def test_records_come_back_and_a_line_cut_by_a_kill_is_left_out(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    assert log.records() == []
    log.append("train", 1, info_nce=2.5)
    log.append("epoch", 2, holdout_knn=0.75)
    with log.path.open("a") as file:
        file.write('{"kind": "train", "st')
    assert log.records() == [
        {"kind": "train", "step": 1, "info_nce": 2.5},
        {"kind": "epoch", "step": 2, "holdout_knn": 0.75},
    ]


def test_a_resume_forgets_measurements_after_its_checkpoint_but_no_event(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step in (10, 20, 30):
        log.append("train", step, loss=0.0)
    log.append("event", 30, event="stopped")
    assert log.forget_after(20) == 1
    assert [(r["kind"], r["step"]) for r in log.records()] == [("train", 10), ("train", 20), ("event", 30)]


def test_a_number_that_is_not_finite_is_written_as_text(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append("train", 1, loss=float("inf"))
    assert log.records()[0]["loss"] == "inf"
