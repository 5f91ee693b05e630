"""Proposes the trials of a sweep: the search's suggestions, then the best settings with other seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ebclab.evaluation.comparison import Measurements, mean_and_interval
from ebclab.evaluation.objectives import SHARES
from ebclab.sweeps.log import Kind, SweepLog, Trial
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.policies.suggest import suggest
from ebclab.sweeps.results import BASELINE, ConfirmedSettings
from ebclab.sweeps.space.space import Point


class SearchProposals:
    """Proposes the trials of the search, each from what the trials before it measured.

    The best point of an earlier sweep, whose points and objectives are ``earlier``, is tried first.
    """

    kind: Kind = "search"

    def __init__(self, plan: SweepPlan, earlier: Sequence[tuple[Point, float]] = ()) -> None:
        self._plan, self._earlier = plan, earlier
        self._first = max(earlier, key=lambda pair: pair[1])[0] if earlier else plan.space.point_of(plan.start)

    def includes(self, trial: Trial) -> bool:
        """Return True: every trial of the search belongs to this phase."""
        return True

    def left(self, trials: Sequence[Trial]) -> int:
        """Return how many trials are still to be proposed: none once the existing ones use up the search's time."""
        budget = self._plan.search_seconds
        if budget and _seconds_in_the_end(trials) >= budget:
            return 0
        return self._plan.trials - len(trials)

    def propose(self, trials: Sequence[Trial]) -> Trial:
        """Return the next trial."""
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
        """Return a free number: one more than the largest, or for a grid the smallest that is missing."""
        taken = {trial.number for trial in trials}
        if self._plan.search == "grid":
            return next(number for number in range(len(taken) + 1) if number not in taken)
        return max(taken, default=-1) + 1


def _seconds_in_the_end(trials: Sequence[Trial]) -> float:
    """Return the total training time of all trials if no running trial stops early.

    It is extrapolated from a trial's own pace or, before its first epoch, from the mean pace of the others; it is
    infinite while trials are running and no pace is known yet.
    """
    paces = [trial.seconds / trial.epochs_done for trial in trials if trial.epochs_done]
    usual = sum(paces) / len(paces) if paces else math.inf

    def whole(trial: Trial) -> float:
        pace = trial.seconds / trial.epochs_done if trial.epochs_done else usual
        return trial.seconds if trial.is_over else max(trial.seconds, pace * trial.epochs)

    return sum(map(whole, trials))


class ConfirmProposals:
    """Proposes the confirming trials: the best settings and the starting ones, at full budget with several seeds.

    Attributes:
        settings: The settings to confirm, by source.
    """

    kind: Kind = "confirm"

    def __init__(self, plan: SweepPlan, log: SweepLog) -> None:
        chosen = distinct(ranked(log.of_kind("search")))[: plan.top]
        self.settings = {trial.id: dict(trial.settings) for trial in chosen}
        if plan.baseline and chosen and plan.start not in self.settings.values():
            self.settings[BASELINE] = plan.start
        self._wanted = {
            confirming_run(source, seed): (rank, source, seed)
            for rank, source in enumerate(self.settings)
            for seed in plan.confirming_seeds
        }
        self._epochs = plan.config.training.epochs

    def includes(self, trial: Trial) -> bool:
        """Return whether a confirming trial has settings that are still among the best."""
        return trial.id in self._wanted

    def left(self, trials: Sequence[Trial]) -> int:
        """Return how many trials are still to be proposed."""
        return len(self._wanted) - len(trials)

    def propose(self, trials: Sequence[Trial]) -> Trial:
        """Return the next trial."""
        known = {trial.id for trial in trials}
        name = next(name for name in self._wanted if name not in known)
        rank, source, seed = self._wanted[name]
        return Trial(name, "confirm", rank, {}, self.settings[source], seed, self._epochs)

    def results(self, log: SweepLog) -> dict[str, list[Trial]]:
        """Return the finished confirming trials by source of their settings, in the order of their seeds.

        Trials whose last objective is not a number are left out.
        """
        trials: dict[str, list[Trial]] = {source: [] for source in self.settings}
        for name, (_, source, _) in self._wanted.items():
            trial = log.trials.get(name)
            if trial is not None and trial.state == "finished" and math.isfinite(trial.value):
                trials[source].append(trial)
        return trials


def confirmed_settings(plan: SweepPlan, log: SweepLog) -> list[ConfirmedSettings]:
    """Return the confirmed settings, the winner first: those with most finished seeds, then with the best mean."""
    proposals = ConfirmProposals(plan, log)
    done = {source: trials for source, trials in proposals.results(log).items() if trials}
    confirmed = []
    for source, trials in done.items():
        seeds, values = tuple(trial.seed for trial in trials), tuple(trial.value for trial in trials)
        measured = Measurements.of(seeds, values, [trial.answers for trial in trials])
        interval = mean_and_interval(measured, len(done), is_rate=plan.config.evaluation.objective in SHARES)
        confirmed.append(
            ConfirmedSettings(
                source=source,
                settings=proposals.settings[source],
                seeds=seeds,
                values=values,
                seeds_asked=plan.seeds,
                answers=tuple(measured.answers.values()),
                **interval.as_mean(),
            )
        )
    return sorted(confirmed, key=lambda entry: (len(entry.values), entry.mean), reverse=True)


def confirming_run(source: str, seed: int) -> str:
    """Return the id, and the name of the run folder, of the trial that confirms settings with a seed."""
    return f"confirm-{source}-seed{seed}"


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that measured anything, best first: finished ones, then the others by epochs done.

    Those that measured no number come last. Interrupted trials are included, those that diverged or failed are not.
    """
    measured = [trial for trial in trials if trial.last is not None and not trial.is_lost]

    def merit(trial: Trial) -> tuple[bool, int, float, int]:
        if math.isnan(trial.value):
            return False, 0, -math.inf, -trial.number
        return trial.state == "finished", trial.epochs_done, trial.value, -trial.number

    return sorted(measured, key=merit, reverse=True)


def distinct(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials without those that repeat the settings of an earlier one, as a search of few choices may."""
    kept: list[Trial] = []
    for trial in trials:
        if all(trial.settings != other.settings for other in kept):
            kept.append(trial)
    return kept
