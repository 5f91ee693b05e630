"""metrics.jsonl survives kills; a long one is read from its end, and says the same as from its beginning."""

import json
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import pytest

from ebclab.errors import RunError
from ebclab.regular_file import open_regular
from ebclab.runs import metrics_log
from ebclab.runs.metrics_log import MetricsLog, line_numbers, lines_from_end, record_of

LINES = 30_000


def placed_lines(content: bytes) -> list[tuple[int, bytes]]:
    """Where each line begins and its text, found from the beginning; nothing after the last newline is no line."""
    found, start = [], 0
    for line in content.splitlines(keepends=True):
        found.append((start, line.rstrip(b"\n")))
        start += len(line)
    return found


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
def test_lines_from_the_end_are_those_from_the_beginning(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_log, "BLOCK", block)
    source = random.Random(block)
    for length in [*range(9), *[source.randrange(60) for _ in range(150)]]:
        content = bytes(source.choices(b"ab\n", k=length))
        lines = placed_lines(content)
        assert [*lines_from_end(BytesIO(content))] == lines[::-1]
        assert [*lines_from_end(BytesIO(content), having=b"ab")] == [line for line in lines[::-1] if b"ab" in line[1]]
        starts = [start for start, _ in lines]
        assert line_numbers(BytesIO(content), starts[::-1]) == [*range(1, len(lines) + 1)]


def random_log(source: random.Random) -> bytes:
    """Measurements whose steps never fall, events of any step, lines that are no records, sometimes a torn end."""
    lines, step = [], 0
    for _ in range(source.randrange(40)):
        step += source.randrange(3)
        kind = source.choice(["train", "train", "epoch", "event", "bad"])
        record = {"kind": kind, "step": step, "loss": source.random()}
        if kind == "event":
            record |= {"step": source.randrange(9), "event": "warning"}
        lines.append(source.choice(["[1]", "", '{"kind": "train"']) if kind == "bad" else json.dumps(record))
    content = "".join(f"{line}\n" for line in lines).encode()
    return content[: source.choice([None, None, -1, -9])]


def is_kept(line: bytes, step: int) -> bool:
    """Whether a line is a record that stays when what was measured after ``step`` goes."""
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and "step" in record and (record["kind"] == "event" or record["step"] <= step)


@pytest.mark.parametrize("block", [16, 1 << 20])
def test_what_a_resume_keeps_is_what_reading_the_whole_log_keeps(tmp_path, block, monkeypatch):
    """Lines that cannot be read may stay before the last measurement that does; ``records`` leaves them out."""
    monkeypatch.setattr(metrics_log, "BLOCK", block)
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for seed in range(200):
        source = random.Random(seed)
        content, step = random_log(source), source.randrange(30)
        log.path.write_bytes(content)
        before = [*log.records()]
        steps = [record["step"] for record in before if record["kind"] != "event"]
        assert log.newest_measured() == max(steps, default=None)
        kept = [json.loads(line) for line in content.split(b"\n") if is_kept(line, step)]
        assert log.forget_after(step) == len(before) - len(kept)
        assert [*log.records()] == kept
        after = log.path.read_bytes()
        assert after in (b"",) or after.endswith(b"\n")
        assert log.forget_after(step) == 0
        assert log.path.read_bytes() == after


@pytest.mark.parametrize(
    "field",
    [
        *({name: {}} for name in ("event", "reason", "text", "action", "finding")),
        *({name: "many"} for name in ("ranks", "num_steps", "reached", "before", "now", "to_step", "step_scale")),
        *({name: "text"} for name in ("notes", "environment_changes", "acted")),
    ],
    ids=lambda field: next(iter(field)),
)
def test_an_event_with_a_field_of_another_type_is_no_record(field: dict[str, object]) -> None:
    record = {"kind": "event", "step": 3, "event": "resumed", "own": [1]}
    assert record_of(json.dumps(record).encode()) == record
    assert record_of(json.dumps(record | field).encode()) is None


def test_the_ranks_of_the_newest_launch_are_found_wherever_it_began(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    assert log.newest_ranks() is None
    log.append("event", 0, event="started", ranks=2, num_steps=9)
    log.append("event", 0, event="resumed", ranks=3, num_steps=9)
    for step in range(9):
        log.append("train", step, loss=1.0)
    log.append("event", 0, event="warning", text='no "ranks" here')
    with log.path.open("a") as file:
        file.write('{"kind": "event", "step": 0, "ranks": 4')
    assert log.newest_ranks() == 3


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each read of a log of metrics from now on."""
    sizes: list[int] = []

    class Counted(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            found = super().read(size)
            sizes.append(len(found))
            return found

    @contextmanager
    def counted(path: Path, limit: int) -> Iterator[BinaryIO]:
        with open_regular(path, limit) as file:
            yield Counted(file.read())

    monkeypatch.setattr(metrics_log, "open_regular", counted)
    return sizes


def test_a_resume_reads_the_end_of_a_long_log_alone(tmp_path: Path, bytes_read: list[int]) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    line = json.dumps({"kind": "train", "step": 5, "loss": 0.123456789, "note": "x" * 100}) + "\n"
    log.path.write_text(line * LINES)
    log.append("train", 6, loss=1.0)
    size = log.path.stat().st_size
    assert size > 4 * metrics_log.BLOCK
    assert log.newest_measured() == 6
    assert log.forget_after(5) == 1
    assert sum(bytes_read) <= 2 * metrics_log.BLOCK
    assert log.path.read_text() == line * LINES


def test_a_log_with_nothing_to_forget_is_not_written_anew(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append("train", 5, loss=1.0)
    log.append("event", 9, event="stopped")
    before = log.path.stat()
    assert log.forget_after(5) == 0
    assert log.path.stat() == before


def test_records_come_back_and_a_line_cut_by_a_kill_is_left_out(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    assert [*log.records()] == []
    log.append("train", 1, info_nce=2.5, loss=float("inf"))
    log.append("epoch", 2, holdout_knn=0.75)
    with log.path.open("a") as file:
        file.write('{"kind": "train", "st')
    assert [*log.records()] == [
        {"kind": "train", "step": 1, "info_nce": 2.5, "loss": "inf"},
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


def test_lines_that_cannot_be_read_are_left_out_with_a_warning(tmp_path, caplog):
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
