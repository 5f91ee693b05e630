"""The trial log: what each event does, and what is left of one that was damaged, cut short, or written by the dead."""

import json
import logging
import math
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kill_points import LOSSES, Loss, killed_everywhere

from ebclab.errors import RunError
from ebclab.storage.segmented_log import joined, new_part
from ebclab.sweeps.log import OVER, Epoch, SweepLog, Trial

PROPOSED = Trial("a", "search", 0, {"x": 2.0}, {"x": 2.0, "y": "a"}, 3, 10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trials.jsonl"


@pytest.fixture
def log(path: Path) -> SweepLog:
    """A log with one proposed trial of ten epochs, called a."""
    log = SweepLog(path)
    log.propose(PROPOSED)
    return log


def reread(log: SweepLog) -> Trial:
    return SweepLog(log.path).trials["a"]


def epoch(number: int, objective: float, seconds: float, **metrics: float) -> dict[str, Any]:
    return {"event": "epoch", "epoch": number, "objective": objective, "seconds": seconds, "metrics": metrics}


@pytest.mark.parametrize(
    ("events", "changes"),
    [
        ([], {"state": "waiting"}),
        ([{"event": "running"}, {"event": "waiting"}], {"state": "waiting"}),
        (
            [epoch(1, 0.5, 7.0, loss=1.0), epoch(3, 0.25, 21.0)],
            {"curve": {1: Epoch(0.5, 7.0, {"loss": 1.0}), 3: Epoch(0.25, 21.0, {}, 1)}, "seconds": 21.0},
        ),
        (
            [
                {"event": "running"},
                {"event": "cloned", "generation": 1, "donor": "b", "epoch": 2}
                | {"point": {"x": 1.5}, "settings": {"x": 1.5, "y": "b"}},
            ],
            {"generation": 1, "exchanged": 2, "point": {"x": 1.5}, "settings": {"x": 1.5, "y": "b"}},
        ),
        ([{"event": "exchanged", "epoch": 2}], {"exchanged": 2}),
        *(
            (
                [{"event": "ended", "state": state, "reason": "because", "seconds": 12.5}],
                {"state": state, "reason": "because", "seconds": 12.5},
            )
            for state in OVER
        ),
    ],
    ids=str,
)
def test_each_event_changes_a_trial_at_once_and_when_the_log_is_read_again(log, events, changes):
    for event in events:
        log.append(trial="a", **event)
    assert log.trials["a"] == reread(log) == replace(PROPOSED, **changes)


def test_a_trial_that_was_running_is_interrupted_when_the_log_is_read_again(log: SweepLog) -> None:
    log.append("running", trial="a")
    assert log.trials["a"].state == "running"
    assert reread(log).state == "interrupted"
    assert not reread(log).is_over


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, None) for name in ("trial", "reason", "images", "kind", "state", "preempted", "runs")),
        *((name, "many") for name in ("number", "seed", "epochs", "concurrent", "searches", "seconds", "seeds")),
        *((name, [[]]) for name in ("gpus_per_trial", "point", "settings", "warm_start", "earlier", "environment")),
    ],
)
def test_an_event_with_a_field_of_another_type_is_left_out(log: SweepLog, name: str, value: object) -> None:
    known = len(SweepLog(log.path).events)
    for field in ({}, {name: value}):
        with log.path.open("a") as file:
            file.write(json.dumps({"event": "own"} | field) + "\n")
    again = SweepLog(log.path)
    assert len(again.events) == known + 1
    assert len(again.problems) == 1


def test_a_trial_says_how_far_it_is_and_where_it_trains() -> None:
    one = replace(PROPOSED, curve={1: Epoch(0.5, 7.0), 3: Epoch(0.25, 21.0)}, generation=1)
    assert (PROPOSED.last, PROPOSED.epochs_done, PROPOSED.run_name) == (None, 0, "a")
    assert (one.last, one.epochs_done, one.run_name) == (Epoch(0.25, 21.0), 3, "a-g1")
    assert (one.objectives, one.value) == ({1: 0.5, 3: 0.25}, 0.25)
    assert math.isnan(PROPOSED.value)


def test_a_log_that_was_copied_out_of_a_store_with_its_parts_is_whole_and_goes_on(log: SweepLog) -> None:
    log.append("epoch", trial="a", epoch=1, objective=0.5, seconds=1.0, metrics={})
    part, rest = log.path.read_bytes().splitlines(keepends=True)
    held = new_part("trials.jsonl", part)
    (log.path.parent / held.name).parent.mkdir()
    (log.path.parent / held.name).write_bytes(part)
    log.path.write_bytes(joined([held], rest))
    assert reread(log).epochs_done == 1
    again = SweepLog(log.path)
    again.append("ended", trial="a", state="finished", reason="", seconds=2.0)
    assert reread(log) == again.trials["a"]


def test_any_other_event_is_kept_and_changes_no_trial(log: SweepLog) -> None:
    before = reread(log)
    for seeds in ([1], [1, 2]):
        log.append("tested", trial="a", seeds=seeds)
    for one in (log, SweepLog(log.path)):
        assert [event["seeds"] for event in one.events] == [[1], [1, 2]]
        assert (one.last_event("tested") or {})["seeds"] == [1, 2]
        assert one.last_event("restarted") is None
    assert reread(log) == before


def test_trials_are_told_apart_by_kind_in_the_order_of_their_proposal(log: SweepLog) -> None:
    for name, kind in [("c", "confirm"), ("b", "search"), ("d", "confirm")]:
        log.propose(replace(PROPOSED, id=name, kind=kind))
    assert [trial.id for trial in SweepLog(log.path).of_kind("search")] == ["a", "b"]
    assert [trial.id for trial in SweepLog(log.path).of_kind("confirm")] == ["c", "d"]


def test_infinities_and_nan_survive_and_every_line_is_plain_json(log: SweepLog) -> None:
    metrics = {"a": math.inf, "b": -math.inf, "c": math.nan}
    log.append("epoch", trial="a", epoch=1, objective=-math.inf, seconds=1.0, metrics=metrics)
    log.append("tested", scores={"knn": {"values": [math.inf, 0.5]}})
    trial = reread(log)
    assert trial.curve[1].objective == -math.inf
    assert trial.curve[1].metrics["a"] == math.inf
    assert trial.curve[1].metrics["b"] == -math.inf
    assert math.isnan(trial.curve[1].metrics["c"])

    for line in log.path.read_text().splitlines():
        record = json.loads(line, parse_constant=pytest.fail)
        assert datetime.fromisoformat(record["time"]).utcoffset() == timedelta(0)


EPOCH = '{"event": "epoch", "trial": "a", "epoch": 1, "objective": 0.5, "seconds": 1.0, "metrics": '
DAMAGED = [
    "",
    "not json",
    "7",
    "[1, 2]",
    "null",
    "\0\0\0\0\0\0\0\0",
    '"text"',
    '{"time": "no event"}',
    '{"event": "running"}',
    '{"event": "running", "trial": "unknown"}',
    '{"event": "trial", "trial": "z"}',
    '{"event": "ended", "trial": "a", "state": "finished", "reason": ""}',
    '{"event": "cloned", "trial": "a", "generation": 1, "epoch": 2}',
    EPOCH + "[]}",
    EPOCH + "3}",
    EPOCH + '{"loss": "much"}}',
    EPOCH.replace("0.5", "null") + "{}}",
    EPOCH + '{"loss": 1',
]


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_is_left_out_with_one_warning_that_names_it_and_the_rest_is_kept(log, line, caplog):
    before = reread(log)
    with log.path.open("ab") as file:
        file.write(line.encode() + b"\n")
    SweepLog(log.path)
    after = SweepLog(log.path)
    assert after.trials["a"] == before
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert after.problems == [f"{log.path}: 1 of its lines cannot be read and are left out: 2"]
    assert caplog.messages == after.problems * 2
    after.append("ended", trial="a", state="finished", reason="", seconds=1.0)
    assert reread(log).state == "finished"


def test_many_damaged_lines_among_whole_ones_are_one_warning(log: SweepLog, caplog: pytest.LogCaptureFixture) -> None:
    with log.path.open("ab") as file:
        file.write(b"\xff\xfe\n" * 6)
    log.append("running", trial="a")
    with log.path.open("ab") as file:
        file.write(b"{\n")
    assert reread(log).state == "interrupted"
    assert [record.getMessage() for record in caplog.records] == [
        f"{log.path}: 7 of its lines cannot be read and are left out: 2, 3, 4, 5, 6 ..."
    ]


@pytest.mark.parametrize("cut", [1, 2, 20])
def test_a_torn_last_line_does_not_swallow_the_next_event(log: SweepLog, cut: int) -> None:
    log.append("ended", trial="a", state="finished", reason="", seconds=1.0)
    log.path.write_bytes(log.path.read_bytes()[:-cut])
    again = SweepLog(log.path)
    assert again.trials["a"].state == (
        "finished" if cut == 1 else "waiting"
    )  # without the line's end it is still whole
    again.append("ended", trial="a", state="failed", reason="why", seconds=2.0)
    assert reread(log).reason == "why"


def test_a_log_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    log = SweepLog(tmp_path / "missing" / "trials.jsonl")
    with pytest.raises(RunError, match=r"trials\.jsonl: cannot be written, got No such file or directory"):
        log.append("started")


def test_an_event_is_on_the_disk_before_it_is_applied_or_sent(path: Path, disk: Any) -> None:
    class Sent:
        """Brings nothing anywhere, and notes when it was asked to."""

        def push(self) -> None:
            disk.events.append(("push", path.name, path.read_bytes()))

        push_soon = push

    log = SweepLog(path, Sent())
    assert not path.exists()
    log.append("started")
    log.propose(PROPOSED)
    first, second = path.read_bytes().splitlines(keepends=True)
    assert disk.events == [
        *(("sync", path.name, first), ("sync", ".", b""), ("push", path.name, first)),  # and the name of a new file
        *((what, path.name, first + second) for what in ("sync", "push")),
    ]


@pytest.mark.parametrize("loss", LOSSES)
def test_no_event_is_lost_once_it_was_written_and_the_log_goes_on(tmp_path: Path, loss: Loss) -> None:
    written = [0]

    def work(folder: Path) -> None:
        written[0] = 0
        log = SweepLog(folder / "trials.jsonl")
        for number in range(3):
            log.propose(replace(PROPOSED, id=str(number)))
            written[0] += 1

    for folder in killed_everywhere(tmp_path, lambda folder: None, work, loss):
        log = SweepLog(folder / "trials.jsonl")
        known = list(log.trials)
        assert len(known) >= written[0]
        assert known == ["0", "1", "2"][: len(known)]
        log.propose(replace(PROPOSED, id="next"))
        assert list(SweepLog(log.path).trials) == [*known, "next"]
