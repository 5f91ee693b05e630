"""Tuning curves: the best score after n random draws of a method's settings, with simultaneous confidence bands.

Scores of draws are independent with an unknown distribution F. The best of n draws has the distribution F^n, so its
median is the quantile 0.5^(1/n) of F. A simultaneous confidence band of F (Learned-Miller and DeStefano, 2008) gives a
simultaneous band of the curve, for any F (Lourie, Cho and He, 2024, arXiv:2311.09480). It requires independent draws:
no adaptive search, no early stopping, and a number of draws fixed in advance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from opda.nonparametric import EmpiricalDistribution

Scores = np.ndarray[Any, np.dtype[np.float64]]

CONFIDENCE = 0.8
"""Probability that a band contains the complete curve."""
_SIMULATED = 0  # seed of the simulation that calibrates the simultaneous bands


@dataclass(frozen=True)
class TuningCurve:
    """The median of the best score among n draws, n = 1 ... N."""

    trials: tuple[int, ...]  # n
    median: tuple[float, ...]  # the estimate
    low: tuple[float, ...]  # lower end of the band
    high: tuple[float, ...]  # upper end of the band; 1 where the draws give no upper bound
    expected: tuple[float, ...]  # unbiased estimate (U-statistic) of the mean of the best score among n draws

    @property
    def known_until(self) -> int:
        """The largest n for which the band has an upper bound below 1; 0 if there is none."""
        return max((n for n, high in zip(self.trials, self.high, strict=True) if high < 1.0), default=0)


@cache
def _band(num_draws: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the lower and the upper end of the band of F between the order statistics of draws.

    Entry k is for scores from the k-th smallest draw up to the next; entry 0 for those below all draws.
    """
    places = np.arange(1, num_draws + 1, dtype=np.float64)
    low, _, high = EmpiricalDistribution.confidence_bands(
        places,
        CONFIDENCE,
        0.0,
        num_draws + 1.0,
        method="ld_equal_tailed",
        generator=np.random.default_rng(_SIMULATED),
        n_jobs=1,
    )
    between = np.arange(0, num_draws + 1) + 0.5
    return tuple(map(float, low.cdf(between))), tuple(map(float, high.cdf(between)))


def tuning_curve(scores: Sequence[float]) -> TuningCurve:
    """Return the tuning curve of independent draws whose scores lie in [0, 1].

    Ties, e.g. of diverged draws, make the band conservative.

    Args:
        scores: Score of each draw, higher is better.
    """
    if not scores or not all(0.0 <= score <= 1.0 for score in scores):
        raise ValueError(f"scores in [0, 1] are needed, got {list(scores)}")
    ordered = np.sort(np.asarray(scores, dtype=np.float64))
    count = len(ordered)
    lowest, highest = _band(count)
    trials = np.arange(1, count + 1)
    levels = 0.5 ** (1.0 / trials)
    estimate = EmpiricalDistribution(ordered, a=0.0, b=1.0)
    return TuningCurve(
        tuple(map(int, trials)),
        tuple(map(float, estimate.quantile_tuning_curve(trials))),
        tuple(_quantile(ordered, highest, level) for level in levels),
        tuple(_quantile(ordered, lowest, level) for level in levels),
        tuple(map(float, estimate.u_tuning_curve(trials))),
    )


def _quantile(ordered: Scores, cdf: Sequence[float], level: float) -> float:
    """Return the smallest score in [0, 1] at which ``cdf`` reaches ``level``; 1 if no draw does.

    Args:
        ordered: Scores of the draws, smallest first.
        cdf: Values of F below all draws, and from each of them up to the next.
        level: Probability, in (0, 1).
    """
    if cdf[0] >= level:
        return 0.0
    reached = (score for score, value in zip(ordered, cdf[1:], strict=True) if value >= level)
    return float(next(reached, 1.0))
