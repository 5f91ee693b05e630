"""Comparisons without training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from made_up_comparison import MadeUp, Scores

from ebclab.comparisons.request import ComparisonRequest


@pytest.fixture
def made_up(tmp_path: Path) -> Callable[..., MadeUp]:
    """Return a function that makes a comparison and measures all of its sweeps, each as told for its method."""

    def make(request: ComparisonRequest, by_method: Mapping[str, Scores] | None = None) -> MadeUp:
        comparison = MadeUp(tmp_path / "comparison", request)
        for planned in comparison.plan.sweeps:
            comparison.measure(planned, **(by_method or {}).get(planned.method, {}))
        return comparison

    return make
