"""Proposes the trials of a sweep: the search's suggestions, then the best settings with other seeds.

Also what these have found so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ebclab.evaluation.comparison import Measurements, difference
from ebclab.evaluation.objectives import SHARES
from ebclab.interval import Interval
from ebclab.sweeps.log import Kind, SweepLog, Trial
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.policies.suggest import suggest
from ebclab.sweeps.results import BASELINE, ConfirmedSettings, SeedScores, SettingsTest
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
        confirmed.append(
            ConfirmedSettings.of(
                measured,
                len(done),
                is_rate=plan.config.evaluation.objective in SHARES,
                source=source,
                settings=proposals.settings[source],
                seeds=seeds,
                seeds_asked=plan.seeds,
            )
        )
    return sorted(confirmed, key=lambda entry: (len(entry.values), entry.mean), reverse=True)


@dataclass(frozen=True)
class SweepFindings:
    """What a sweep has found according to its log, computed when it is asked for."""

    plan: SweepPlan
    log: SweepLog

    @cached_property
    def search(self) -> list[Trial]:
        return self.log.of_kind("search")

    @cached_property
    def order(self) -> list[Trial]:
        """The search trials with measurements, best first; diverged and failed ones are excluded."""
        return ranked(self.search)

    @cached_property
    def confirmed(self) -> list[ConfirmedSettings]:
        """The confirmed settings, the winner first."""
        return confirmed_settings(self.plan, self.log)

    @cached_property
    def differences(self) -> list[Interval | None]:
        """The difference between the winner and each of the confirmed settings; None for the winner itself."""
        gaps = [difference(self.confirmed[0].measured, e.measured, len(self.confirmed)) for e in self.confirmed[1:]]
        return [None, *gaps] if self.confirmed else []

    @cached_property
    def start_place(self) -> int | None:
        """Index in ``confirmed`` of the settings that the search started from; None if they were not confirmed."""
        return next((place for place, entry in enumerate(self.confirmed) if entry.is_start(self.plan)), None)

    @cached_property
    def test(self) -> dict[str, SeedScores] | None:
        """The winner's test scores by probe; None if the test set was not read."""
        return SettingsTest.known(self.log, self.confirmed[0], len(self.confirmed)) if self.confirmed else None

    @cached_property
    def test_of_start(self) -> dict[str, SeedScores] | None:
        """The test scores of the starting settings by probe; None if they were not tested, or won."""
        place = self.start_place
        return SettingsTest.known(self.log, self.confirmed[place], len(self.confirmed)) if place else None

    @cached_property
    def test_gain(self) -> dict[str, Interval]:
        """Gain of the winner over the starting settings on the test set, by probe."""
        if self.start_place is None or self.test is None or self.test_of_start is None:
            return {}
        winner, start = self.confirmed[0], self.confirmed[self.start_place]
        return {
            probe: difference(winner.measured_by(score), start.measured_by(other), len(self.confirmed))
            for probe, score in self.test.items()
            if (other := self.test_of_start.get(probe))
        }


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
