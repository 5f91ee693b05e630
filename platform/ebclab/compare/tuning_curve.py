"""How well a method does after n random draws of its settings, with bands that hold for all n at once.

A draw's score has an unknown distribution F, the same for every draw. The best of n draws has F^n, so its median is the
quantile 0.5^(1/n) of F. A band that holds all of F with a stated probability (Learned-Miller and DeStefano, 2008) gives
a band that holds the whole curve, whatever F is (Lourie, Cho and He, 2024, arXiv:2311.09480). It takes independent
draws: no search that learns, no early stopping, and a number of draws that was fixed beforehand.
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
"""Probability that a band holds its whole curve."""
_SIMULATED = 0  # seed of the simulation by which the bands are widened until they hold together


@dataclass(frozen=True)
class TuningCurve:
    """The median of the best score among n draws, n = 1 ... N.

    Attributes:
        trials: n.
        median: The estimate.
        low: Lower end of the band.
        high: Upper end of the band; 1 where the draws say nothing about it.
        expected: The mean of the best score among n draws, without bias (the U-statistic).
    """

    trials: tuple[int, ...]
    median: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    expected: tuple[float, ...]

    @property
    def known_until(self) -> int:
        """The largest n for which the band has an upper end; 0 where it has none at all."""
        return max((n for n, high in zip(self.trials, self.high, strict=True) if high < 1.0), default=0)


@cache
def _band(num_draws: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the band of F at and between the order statistics of so many draws: lowest and highest value of F.

    Entry k is for scores from the k-th smallest draw up to the next; entry 0 for those below all.
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

    Draws with equal scores, as those that diverged, make the band wider than it need be, never too narrow.

    Args:
        scores: Score of each draw, higher is better.

    Raises:
        ValueError: No score, or one outside [0, 1].
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
    """Return the smallest score in [0, 1] at which ``cdf`` reaches ``level``; 1 where no draw does.

    Args:
        ordered: Scores of the draws, smallest first.
        cdf: Values of F below all draws, and from each of them up to the next.
        level: In (0, 1).
    """
    if cdf[0] >= level:
        return 0.0
    reached = (score for score, value in zip(ordered, cdf[1:], strict=True) if value >= level)
    return float(next(reached, 1.0))
