"""Comparisons without training."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from made_up_comparison import MadeUp, Scores

from ebclab.comparisons.request import ComparisonRequest

Make = Callable[[Path, ComparisonRequest, Mapping[str, Scores]], MadeUp]


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Return a function that puts a comparison into a folder; one that was asked for before is copied there."""
    known: dict[str, MadeUp] = {}

    def make(folder: Path, request: ComparisonRequest, by_method: Mapping[str, Scores]) -> MadeUp:
        first = known.get(told := repr((request, by_method)))
        if first is None:
            first = known[told] = MadeUp(tmp_path_factory.mktemp("made") / "comparison", request)
            for planned in first.plan.sweeps:
                first.measure(planned, **by_method.get(planned.method, {}))
        return first.copied(folder)

    return make


@pytest.fixture
def made_up(_made: Make, tmp_path: Path) -> Callable[..., MadeUp]:
    """Return a function that makes a comparison and measures all of its sweeps, each as told for its method."""
    return lambda request, by_method=None: _made(tmp_path / "comparison", request, by_method or {})
