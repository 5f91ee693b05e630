"""Images per second: mean and spread over intervals, without the first."""

from __future__ import annotations

import pytest

from ebclab.training import loop
from ebclab.training.loop import RateMeter


def test_the_first_interval_is_left_out_once_there_is_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now)
    meter = RateMeter()
    assert meter.summary() is None
    for images, seconds in ((100, 10.0), (300, 1.0), (100, 1.0)):
        meter.count(images)
        now += seconds
        assert meter.lap() == pytest.approx(images / seconds)
    summary = meter.summary()
    assert summary == {"mean": pytest.approx(200.0), "std": pytest.approx(100.0)}


def test_time_before_a_restart_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now)
    meter = RateMeter()
    now += 60.0
    meter.restart()
    meter.count(50)
    now += 1.0
    assert meter.lap() == pytest.approx(50.0)
