"""Winner, intervals and noise against scipy and closed forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scipy import stats

from ebclab.reports.reading import read_sweep
from ebclab.reports.sections import lead, section
from ebclab.reports.verdict import difference
from ebclab.sweeps.proposals import confirmed_settings


def test_the_difference_has_the_interval_of_welchs_test_in_scipy() -> None:
    one, other = [0.71, 0.74, 0.73, 0.78], [0.70, 0.71, 0.66]
    expected = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    found = difference(one, other)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert found.mean == pytest.approx(0.74 - 0.69)


def test_one_seed_has_no_interval_and_equal_values_have_one_of_no_width() -> None:
    assert difference([0.7], [0.6, 0.5]).is_noise is None
    assert difference([0.7, 0.7], [0.6, 0.6]).is_noise is False
    assert difference([0.7, 0.7], [0.7, 0.7]).is_noise is True


def test_the_winner_is_named_with_what_is_within_noise_of_it_and_beats_the_start(
    sweep_folder: Callable[..., Any],
) -> None:
    folder = sweep_folder()
    folder.fill()
    record = read_sweep(folder.path)
    assert [entry.source for entry in confirmed_settings(record.plan, record.log)] == ["0007", "0006", "baseline"]
    part = section(record, price=None)
    assert part.start == 2
    # Standard errors 0.02/sqrt(3) and 0.01/sqrt(3), 2.94 degrees of freedom: half width 3.22 * 0.0129.
    assert lead(part) == (
        "Winner: trial 0007, 62.0% over 3 seeds (95 %: 57.0% to 67.0%). Within noise of trial 0006. "
        "Better than the starting settings by +11.0 points (95 %: +6.8 to +15.2)."
    )


def test_without_confirmation_the_best_trial_is_called_unconfirmed(sweep_folder: Callable[..., Any]) -> None:
    folder = sweep_folder()
    folder.search(0, [0.4, 0.5, 0.5, 0.5])
    assert "Best trial so far: 0000 with 50.0%. One seed, not confirmed" in lead(section(read_sweep(folder.path), None))
