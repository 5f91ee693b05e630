"""Cost and Pareto line against sums by hand and a slow definition."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from ebclab.reports.costs import cost_of, pareto
from ebclab.reports.reading import read_sweep


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
