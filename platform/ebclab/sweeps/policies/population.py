"""Population based training (Jaderberg et al. 2017): bad trials copy the weights of good ones and perturb settings.

Decisions are pure functions of the trials in the log; random numbers are hashes of seed, trial and epoch. So a resumed
sweep makes the same clones of the same donors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ebclab.data.hashing import hash_words, unit_interval
from ebclab.sweeps.log import Trial
from ebclab.sweeps.space.space import Parameter, Point, Space, rounded

_END_OF_TEXT = 256  # no byte


def exploit(trial: Trial, level: Sequence[Trial], quantile: float) -> Trial | None:
    """Return the donor: the trial whose weights ``trial`` copies after its newest epoch; None when it keeps its own.

    ``level`` are the trials that have done as many epochs, ``trial`` among them. They are ranked by what they measured
    in this epoch. A trial in the lowest ``quantile`` (at most one half; rounded up to whole trials unless the two ends
    would overlap) gets a donor in the highest, drawn by hash. A trial that was stopped, diverged or failed keeps its
    rank, so that its later fate does not change the ranks of others, but it is not a donor.
    """
    ranked = sorted(level, key=lambda other: (_merit(other), other.id))
    size = min(math.ceil(len(ranked) * quantile), len(ranked) // 2)
    if trial not in ranked[:size]:
        return None
    better = [other for other in ranked[-size:] if not other.is_over and _merit(other) > _merit(trial)]
    draw = next(_draws(trial.seed, trial.id, trial.epochs_done, "donor"))
    return better[int(draw * len(better))] if better else None


def explore(
    point: Point,
    space: Space,
    *,
    seed: int,
    trial_id: str,
    epoch: int,
    resample_rate: float,
) -> Point:
    """Return a point near the donor's: each coordinate is multiplied by 0.8 or 1.25, or drawn from its range.

    Of quantised numbers it becomes the nearest level in that direction, at least the next one. Whole numbers and
    choices keep their value, since the weights would not fit another one. ``resample_rate`` is the probability that a
    coordinate is drawn from its range; else both factors are equally likely.
    """
    changed = dict(point)
    for parameter in space.parameters:
        if parameter.kind in ("uniform", "loguniform", "quantised"):
            draws = _draws(seed, trial_id, epoch, parameter.name)
            changed[parameter.name] = _changed(point[parameter.name], parameter, draws, resample_rate)
    return changed


def _changed(value: float, parameter: Parameter, draws: Iterator[float], resample_rate: float) -> float:
    if next(draws) < resample_rate:
        return float(parameter.at(next(draws)))
    factor = 0.8 if next(draws) < 0.5 else 1.25
    if parameter.levels:
        return _level(value, value * factor, factor > 1, parameter.levels)
    return min(max(rounded(value * factor), parameter.low), parameter.high)


def _level(old: float, wanted: float, is_up: bool, levels: Sequence[float]) -> float:
    """Return the level nearest to ``wanted`` among those beyond ``old``; ``old`` if it is the last one."""
    beyond = [level for level in levels if (level > old if is_up else level < old)]
    return min(beyond, key=lambda level: abs(level - wanted), default=old)


def at_exchange(trial: Trial, interval_epochs: int) -> bool:
    """Return whether ``trial`` stands at the end of an interval before its last epoch."""
    return 0 < trial.epochs_done < trial.epochs and trial.epochs_done % interval_epochs == 0


def _merit(trial: Trial) -> float:
    """Return the newest objective; nan counts as the worst."""
    return -math.inf if math.isnan(trial.value) else trial.value


def _draws(seed: int, trial_id: str, epoch: int, purpose: str) -> Iterator[float]:
    """Yield numbers in [0, 1) that depend on the arguments alone."""
    words = (seed, epoch, *trial_id.encode(), _END_OF_TEXT, *purpose.encode(), _END_OF_TEXT)
    number = 0
    while True:
        yield unit_interval(hash_words(*words, number)).item()
        number += 1
