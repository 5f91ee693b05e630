"""Where a sweep's trials come from: the search's own suggestions, and the best settings with other seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

from scipy import stats

from ebclab.evaluation.objectives import NEED_LABELS
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.policies.suggest import suggest
from ebclab.sweeps.space.check import own_settings
from ebclab.sweeps.trial import Kind, Trial

BASELINE = "baseline"
"""Stands for the id of a search trial where the settings are the ones that the search started from."""


class SearchProposals:
    """Trials that a search suggests, each knowing what the ones before have found.

    Args:
        plan: The sweep.
        earlier: Points and objectives of a sweep before this one; its best point is tried first.
    """

    kind: Kind = "search"

    def __init__(self, plan: SweepPlan, earlier: Sequence[tuple[dict[str, Any], float]] = ()) -> None:
        self._plan, self._earlier = plan, earlier
        own = plan.space.point_of(own_settings(plan.space, plan.config))
        self._first = max(earlier, key=lambda pair: pair[1])[0] if earlier else own

    def includes(self, trial: Trial) -> bool:
        """Return True: every searching trial is one of these."""
        return True

    def left(self, trials: Sequence[Trial]) -> int:
        """Return how many are still to be proposed."""
        return self._plan.trials - len(trials)

    def propose(self, trials: Sequence[Trial]) -> Trial:
        """Return the next one."""
        plan, number = self._plan, self._next_number(trials)
        point = suggest(
            plan.space,
            plan.search,
            seed=plan.config.seed,
            number=number,
            trials=trials,
            default=self._first,
            earlier=self._earlier,
        )
        settings = plan.space.settings(point)
        return Trial(f"{number:04d}", "search", number, point, settings, plan.config.seed, plan.epochs)

    def _next_number(self, trials: Sequence[Trial]) -> int:
        """Return a number that no trial has: the next one, or of a grid the first one that is missing."""
        taken = {trial.number for trial in trials}
        if self._plan.search == "grid":
            return next(number for number in range(len(taken) + 1) if number not in taken)
        return max(taken, default=-1) + 1


class ConfirmProposals:
    """The best settings of a search, and the ones it started from, each with several seeds at full budget.

    Args:
        plan: The sweep.
        log: Its log, when the search is over.
    """

    kind: Kind = "confirm"

    def __init__(self, plan: SweepPlan, log: SweepLog) -> None:
        chosen = ranked(log.of_kind("search"))[: plan.top]
        self.settings = {trial.id: dict(trial.settings) for trial in chosen}
        own = own_settings(plan.space, plan.config)
        if plan.baseline and chosen and own not in self.settings.values():
            self.settings[BASELINE] = own
        seeds = range(plan.config.seed + 1, plan.config.seed + 1 + plan.seeds)  # others than that of the search
        self._wanted = {
            f"confirm-{source}-seed{seed}": (rank, source, seed)
            for rank, source in enumerate(self.settings)
            for seed in seeds
        }
        self._epochs, self.num_seeds = plan.config.training.epochs, plan.seeds
        self.is_rate = plan.config.evaluation.objective in NEED_LABELS

    def includes(self, trial: Trial) -> bool:
        """Return whether a confirming trial is of settings that still count among the best."""
        return trial.id in self._wanted

    def left(self, trials: Sequence[Trial]) -> int:
        """Return how many are still to be proposed."""
        return len(self._wanted) - len(trials)

    def propose(self, trials: Sequence[Trial]) -> Trial:
        """Return the next one."""
        known = {trial.id for trial in trials}
        name = next(name for name in self._wanted if name not in known)
        rank, source, seed = self._wanted[name]
        return Trial(name, "confirm", rank, {}, self.settings[source], seed, self._epochs)

    def results(self, log: SweepLog) -> dict[str, dict[int, float]]:
        """Return the last objective of every finished confirming trial: by source of the settings, by seed."""
        found: dict[str, dict[int, float]] = {source: {} for source in self.settings}
        for name, (_, source, seed) in self._wanted.items():
            trial = log.trials.get(name)
            if trial is not None and trial.state == "finished" and trial.last is not None:
                found[source][seed] = trial.last.objective
        return found


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """Return trials that measured anything, best first: finished ones, then others by how far they came.

    Trials that the end of the search's time has interrupted count; those that diverged or failed do not.
    """
    measured = [trial for trial in trials if trial.last is not None and trial.state not in ("diverged", "failed")]

    def merit(trial: Trial) -> tuple[bool, int, float, int]:
        last = trial.last.objective if trial.last else math.nan
        return trial.state == "finished", trial.epochs_done, -math.inf if math.isnan(last) else last, -trial.number

    return sorted(measured, key=merit, reverse=True)


def mean_and_interval(values: Sequence[float], *, is_rate: bool) -> dict[str, float | None]:
    """Return mean, standard deviation and Student's 95 % interval of the mean over seeds; none of one value alone.

    Args:
        values: One a seed.
        is_rate: They are shares: the interval ends at 0 and 1.
    """
    mean = fmean(values)
    if len(values) < 2:
        return {"mean": mean, "std": None, "low": None, "high": None}
    std = stdev(values)
    half = float(stats.t.ppf(0.975, len(values) - 1)) * std / len(values) ** 0.5
    low, high = mean - half, mean + half
    return {
        "mean": mean,
        "std": std,
        "low": max(low, 0.0) if is_rate else low,
        "high": min(high, 1.0) if is_rate else high,
    }
