"""metrics.jsonl survives kills, and a resume repeats nothing in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ebclab.errors import RunError
from ebclab.runs.metrics_log import MetricsLog


def test_records_come_back_and_a_line_cut_by_a_kill_is_left_out(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    assert [*log.records()] == []
    log.append("train", 1, info_nce=2.5)
    log.append("epoch", 2, holdout_knn=0.75)
    with log.path.open("a") as file:
        file.write('{"kind": "train", "st')
    assert [*log.records()] == [
        {"kind": "train", "step": 1, "info_nce": 2.5},
        {"kind": "epoch", "step": 2, "holdout_knn": 0.75},
    ]


def test_a_record_after_a_torn_line_stands_on_a_line_of_its_own(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append("train", 1, loss=2.5)
    whole = log.path.read_bytes()
    for left in (whole[:-1], whole + whole[:-1], whole + b"{", b"{"):
        log.path.write_bytes(left)
        log.append("event", 0, event="warning", text="a checkpoint is damaged")  # before the log is cut to a checkpoint
        assert [record["kind"] for record in log.records()] == ["train"] * left.count(b"}") + ["event"]
        assert log.path.read_bytes().startswith(left + b"\n")


def test_a_number_that_is_not_finite_is_written_as_text(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append("train", 1, loss=float("inf"))
    assert next(log.records())["loss"] == "inf"


def test_lines_that_cannot_be_read_are_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append("train", 1, loss=2.5)
    bad = [
        b"\xff\xfe",
        b"[1]",
        b'{"step": 1}',
        b'{"kind": "train", "step": "2"}',
        b'{"kind": "odd", "step": 2}',
        b"[" * 99,
    ]
    with log.path.open("ab") as file:
        file.write(b"\n".join(bad) + b"\n")
    log.append("train", 3, loss=2.0)
    assert [record["step"] for record in log.records()] == [1, 3]
    assert log.newest_measured() == 3
    (warning,) = caplog.records
    assert warning.getMessage() == f"{log.path}: 6 of its lines cannot be read and are left out: 2, 3, 4, 5, 6 ..."
    caplog.clear()
    assert log.forget_after(1) == 1
    assert "6 of its lines cannot be read" in caplog.text
    caplog.clear()
    assert [record["step"] for record in log.records()] == [1]
    assert caplog.text == ""


def test_a_log_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(RunError, match=r"metrics\.jsonl: cannot be read, got a pipe or a device, not a file"):
        next(MetricsLog(tmp_path / "metrics.jsonl").records())
