"""Cost and Pareto line against sums by hand and a slow definition."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from ebclab.reports.reading import read_sweep
from ebclab.reports.sections import cost_of
from ebclab.reports.sweep_plots import objective_against_time, pareto


def test_gpu_hours_are_trial_hours_times_the_share_of_a_gpu(sweep_folder: Callable[..., Any]) -> None:
    folder = sweep_folder()
    folder.fill()
    cost = cost_of(read_sweep(folder.path), price=7.2)
    assert cost.search_hours == pytest.approx((8 * 40 + 10 + 20 + 20 + 20) / 3600)
    assert cost.confirm_hours == pytest.approx(9 * 40 / 3600)
    assert cost.money == pytest.approx((390 + 360) / 3600 * 0.5 * 7.2)


def test_the_pareto_line_holds_exactly_the_points_that_no_other_beats() -> None:
    source = random.Random(0)
    points = [(float(source.randrange(20)), float(source.randrange(20))) for _ in range(60)]
    slow = {(x, y) for x, y in points if not any((a <= x and b >= y) and (a, b) != (x, y) for a, b in points)}
    assert pareto(points) == sorted(slow)


def test_gpu_hours_of_a_sweep_that_was_resumed_with_other_gpus_are_those_of_each_launch(
    sweep_folder: Callable[..., Any],
) -> None:
    """All hours were charged at the newest share: 100 s of two GPUs and 50 s of a quarter as 150 s of a quarter."""
    folder = sweep_folder()
    trial = {"kind": "search", "point": {}, "settings": {}, "seed": 0, "epochs": 4}
    folder.log.append("resumed", concurrent=1, gpus_per_trial=2.0)
    folder.log.append("trial", trial="0000", number=0, **trial)
    folder.log.append("epoch", trial="0000", epoch=1, objective=0.5, seconds=60.0, metrics={})
    folder.log.append("ended", trial="0000", state="interrupted", reason="asked", seconds=100.0)
    folder.log.append("resumed", concurrent=1, gpus_per_trial=0.25)
    folder.log.append("epoch", trial="0000", epoch=2, objective=0.6, seconds=130.0, metrics={})
    folder.log.append("ended", trial="0000", state="finished", reason="", seconds=150.0)
    record = read_sweep(folder.path)
    cost = cost_of(record, price=3.0)
    assert cost.gpu_hours == pytest.approx((100 * 2 + 50 * 0.25) / 3600)
    assert cost.money == pytest.approx(3 * cost.gpu_hours)
    folder.log.append("resumed", concurrent=1, gpus_per_trial=0.0)
    later = cost_of(read_sweep(folder.path), price=3.0)
    assert (later.gpu_hours, later.used_gpus) == (cost.gpu_hours, True)
    plot = objective_against_time(record)
    assert plot is not None
    (text,) = [text for trace in plot.figure["data"] if trace["mode"] == "markers" for text in trace["text"]]
    assert text == f"0000, {130 * (212.5 / 150) / 3600:.3g} GPU-hours"
