"""The display of a run that others train says what the run's log says, once, also when workers start anew."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ebclab.runs.metrics_log import LogEvents, MetricsLog, record_of
from ebclab.runs.stop_request import FileRequest
from ebclab.storage.signal_file import LocalSignal
from ebclab.training.display import Listener
from ebclab.training.ray_train import follow
from ebclab.training.ray_train.follow import RunFollower, watch


class Screen(Listener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def start(self, step: int, num_steps: int, epochs: int) -> None:
        self.told.append(("start", step, num_steps, epochs))

    def on_log(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        self.told.append((step, epoch, metrics))

    def on_epoch(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        self.told.append(("epoch", step, epoch, metrics))

    def note(self, text: str) -> None:
        self.told.append(text)

    def stop(self) -> None:
        self.told.append("stop")

    def take(self) -> list[Any]:
        told, self.told = self.told, []
        return told


@pytest.fixture
def log(tmp_path: Path) -> MetricsLog:
    return MetricsLog(tmp_path / "metrics.jsonl")


def _train(log: MetricsLog, step: int) -> None:
    log.append("train", step, epoch=(step - 1) // 2, seconds=0.5, info_nce=float(step))


def test_a_run_is_shown_as_it_is_written(log: MetricsLog) -> None:
    screen = Screen()
    follower = RunFollower(log, 5, screen)
    follower.poll()
    assert screen.take() == []
    log.append("event", 0, event="started", ranks=2, num_steps=10, notes=["digits: 9 images"])
    _train(log, 1)
    follower.poll()
    assert screen.take() == ["digits: 9 images", ("start", 0, 10, 5), (1, 0, {"seconds": 0.5, "info_nce": 1.0})]
    with log.path.open("a", encoding="utf-8") as file:
        file.write('{"kind": "train", "st')  # half a line: it is not yet told
    follower.poll()
    assert screen.take() == []
    with log.path.open("a", encoding="utf-8") as file:
        file.write('ep": 2, "epoch": 0, "info_nce": 2.0}\n')
    log.append("epoch", 2, epoch=1, seconds=0.75, holdout_knn=0.5)
    follower.poll()
    shown = {"seconds": 0.75, "info_nce": 2.0, "holdout_knn": 0.5}
    assert screen.take() == [(2, 0, {"info_nce": 2.0}), ("epoch", 2, 1, shown)]


def test_workers_that_start_anew_are_followed_without_telling_anything_twice(log: MetricsLog) -> None:
    screen = Screen()
    follower = RunFollower(log, 5, screen)
    log.append("event", 0, event="started", ranks=2, num_steps=10)
    for step in (1, 2):
        _train(log, step)
    log.append("epoch", 2, epoch=1, seconds=0.5, holdout_knn=0.5)
    _train(log, 3)
    follower.poll()
    screen.take()
    assert log.forget_after(2) == 1
    follower.poll()  # between the rewriting and the event
    assert screen.take() == []
    log.append("event", 2, event="resumed", ranks=1, num_steps=10, notes=["digits: 9 images"])
    _train(log, 3)
    follower.poll()
    told = screen.take()
    assert told[:3] == ["resuming at step 2 of 10 on 1 worker", "stop", ("start", 2, 10, 5)]
    assert [step for step, _, _ in told[3:]] == [3]


def test_what_an_earlier_launch_wrote_is_not_shown(log: MetricsLog) -> None:
    log.append("event", 0, event="started", ranks=1, num_steps=10)
    _train(log, 1)
    screen = Screen()
    follower = RunFollower(log, 5, screen)
    follower.poll()
    log.forget_after(0)  # no checkpoint was made
    log.append("event", 0, event="started", ranks=1, num_steps=10)
    _train(log, 1)
    follower.poll()
    assert [told[0] for told in screen.take()] == ["start", 1]


def test_warnings_of_workers_reach_the_screen(log: MetricsLog) -> None:
    import logging

    screen = Screen()
    follower = RunFollower(log, 5, screen)
    with LogEvents(log):
        logging.getLogger("ebclab.training").warning("%s: damaged", "last-1")
    with LogEvents(log, active=False):
        logging.getLogger("ebclab.training").warning("not for the log")
    follower.poll()
    assert screen.take() == ["warning: last-1: damaged"]


def test_a_warning_that_the_full_disk_does_not_take_ends_nothing(log, monkeypatch):
    import logging

    def full(*words: object, **values: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log, "append", full)
    with LogEvents(log):
        logging.getLogger("ebclab.storage").warning("the store does not answer")


@pytest.mark.parametrize("has_started", [True, False])
def test_the_first_signal_leaves_a_wish_for_the_workers_and_says_so(log, tmp_path, has_started):
    screen, stop = Screen(), FileRequest(LocalSignal(tmp_path / ".stop"))
    follower = RunFollower(log, 5, screen)
    if has_started:
        log.append("event", 0, event="started", ranks=2, num_steps=10)
        follower.poll()
        screen.take()

    def work() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        while not stop.is_set:
            time.sleep(0.01)
        time.sleep(0.5)  # it is looked at every 0.3 s
        return "stopped"

    assert watch(work, follower, stop) == "stopped"
    assert not stop.is_set
    when = "at their next log step" if has_started else "at their first log step, when they have started"
    assert screen.take() == [f"asked to stop: the workers save {when}; once more aborts", "stop"]


def test_a_trial_that_its_sweep_ends_has_no_workers_left(log: MetricsLog, tmp_path: Path) -> None:
    class Ends(Listener):
        def on_log(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
            raise SystemExit

    stop, saved = FileRequest(LocalSignal(tmp_path / ".stop")), []

    def work() -> None:
        _train(log, 1)
        while not FileRequest(LocalSignal(tmp_path / ".stop")).is_set:
            time.sleep(0.01)
        _train(log, 2)
        time.sleep(0.5)
        saved.append("checkpoint")

    with pytest.raises(SystemExit):
        watch(work, RunFollower(log, 5, Ends()), stop)
    assert saved == ["checkpoint"]
    assert not stop.is_set


def test_a_request_that_comes_before_the_workers_is_not_lost(log: MetricsLog, tmp_path: Path) -> None:
    asked = FileRequest(LocalSignal(tmp_path / ".stop"))
    asked.set()  # by a sweep whose time is over, while its trial's process started
    seen = watch(lambda: asked.is_set, RunFollower(log, 5, Screen()), FileRequest(LocalSignal(tmp_path / ".stop")))
    assert seen is True


def test_what_the_work_raises_is_raised_here(log: MetricsLog, tmp_path: Path) -> None:
    def work() -> None:
        raise OSError("no workers")

    with pytest.raises(OSError, match="no workers"):
        watch(work, RunFollower(log, 5, Screen()), FileRequest(LocalSignal(tmp_path / ".stop")))


def test_a_run_that_goes_back_shows_its_steps_again_and_says_why(log: MetricsLog) -> None:
    screen = Screen()
    follower = RunFollower(log, 5, screen)
    log.append("event", 0, event="started", ranks=2, num_steps=10)
    _train(log, 1)
    _train(log, 2)
    follower.poll()
    screen.take()
    log.forget_after(1)
    event = {"action": "roll_back", "reason": "chain_saturation 0.95", "acted": True, "to_step": 1, "step_scale": 0.25}
    log.append("event", 2, event="health", **event)
    _train(log, 2)
    follower.poll()
    note = (
        "health, step 2: went back to step 1: chain_saturation 0.95; the sampler's step is now 0.25 times its setting"
    )
    assert screen.take() == [note, (2, 0, {"seconds": 0.5, "info_nce": 2.0})]


def test_measurements_that_are_not_shown_are_not_read(log: MetricsLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run may have a million of them; its log is read anew when the workers shorten it."""
    read: list[bytes] = []
    monkeypatch.setattr(follow, "record_of", lambda line: read.append(line) or record_of(line))
    log.append("event", 0, event="started", ranks=1, num_steps=10)
    for step in (1, 2, 3):
        _train(log, step)
    screen = Screen()
    follower = RunFollower(log, 5, screen)
    log.forget_after(2)
    log.append("event", 2, event="resumed", ranks=1, num_steps=10)
    _train(log, 3)
    follower.poll()
    assert [json.loads(line).get("event", "measured") for line in read] == ["started", "started", "resumed", "measured"]
    assert screen.take()[-1][0] == 3
