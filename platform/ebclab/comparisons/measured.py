"""Measurements of the sweeps of a comparison, read from their logs: draws, tuned and default settings by seed."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from statistics import stdev
from typing import Any, Literal

from ebclab.comparisons.plan import PlannedSweep, Task
from ebclab.comparisons.request import Metric
from ebclab.comparisons.statistics import TuningCurve, chance_of_spread, tuning_curve
from ebclab.evaluation.answers import Answers
from ebclab.evaluation.comparison import Measurements, mean_and_interval
from ebclab.interval import Interval
from ebclab.reports.comparable import footing, importance
from ebclab.runs.references import Protocol
from ebclab.sweeps.log import LAUNCHES, LOST, State, SweepLog, Trial, sharing_a_gpu
from ebclab.sweeps.proposals import ConfirmProposals, confirming_run, ranked
from ebclab.sweeps.results import BASELINE, SettingsTest, scores_over_seeds
from ebclab.sweeps.space.space import Settings

WORST = 0.0
"""Accuracy assigned to a run that diverged, collapsed or failed."""


@dataclass(frozen=True)
class Draw:
    """A trial of the search."""

    score: float  # its score on held-out images; ``WORST`` if it diverged or failed, or if there is no finite score
    seconds: float  # its training time
    state: State  # its final state

    @property
    def is_lost(self) -> bool:
        return self.state in LOST

    @classmethod
    def of(cls, trial: Trial) -> Draw:
        """Return the draw of a trial that has ended."""
        score = trial.last.objective if trial.last and not trial.is_lost else WORST
        return cls(score if math.isfinite(score) else WORST, trial.seconds, trial.state)


@dataclass(frozen=True)
class SeedCurve:
    """Learning curve of a confirmation run."""

    epochs: tuple[int, ...]  # numbers of completed epochs
    seconds: tuple[float, ...]  # training time up to each of them
    scores: tuple[float, ...]  # score on held-out images after each of them

    @classmethod
    def of(cls, trial: Trial) -> SeedCurve:
        """Return the curve of a run."""
        points = sorted(trial.curve.items())
        return cls(
            tuple(epoch for epoch, _ in points),
            tuple(point.seconds for _, point in points),
            tuple(point.objective for _, point in points),
        )

    def reaches(self, target: float) -> tuple[int, float] | None:
        """Return epochs and seconds until the score was at least ``target``; None if it never was."""
        for epoch, seconds, score in zip(self.epochs, self.seconds, self.scores, strict=True):
            if score >= target:
                return epoch, seconds
        return None


@dataclass(frozen=True)
class SettingsRuns:
    """Runs of the same settings with several seeds."""

    source: str  # id of the search trial, or ``baseline``
    settings: Settings
    held_out: Measurements  # the objective of each run
    tested: dict[str, Measurements]  # accuracies on the test images by probe; empty if they have not been measured
    curves: tuple[SeedCurve, ...]  # learning curves of the runs that finished
    lost: int  # number of runs that did not finish: they diverged, were stopped due to collapse, or failed
    metric: Metric = "knn"  # the probe whose accuracies are compared

    @property
    def score(self) -> Measurements | None:
        """The accuracies on the test images that are compared; None if they have not been measured."""
        return self.tested.get(self.metric)

    @cached_property
    def accuracy(self) -> Interval | None:
        """Their mean, with an individual interval."""
        return None if self.score is None else mean_and_interval(self.score, 1, is_rate=True)

    @property
    def all_lost(self) -> bool:
        return self.lost == len(self.held_out.by_seed)

    @property
    def seconds(self) -> float:
        """Mean training time of the runs that finished; NaN if none did."""
        ends = [curve.seconds[-1] for curve in self.curves if curve.seconds]
        return sum(ends) / len(ends) if ends else math.nan


@dataclass(frozen=True)
class MeasuredSweep:
    """Measurements of one sweep of a comparison."""

    planned: PlannedSweep
    # the finished random draws, or trials of the practice arm, without the default settings
    draws: tuple[Draw, ...] = ()
    default_draw: Draw | None = None  # the trial of the default settings in the search; None before it has finished
    tuned: SettingsRuns | None = None  # the runs of the settings chosen by the search; None if not all have finished
    # the runs of the default settings; the same object as ``tuned`` if the search found nothing better; None in the
    # practice arm, or if not all have finished
    default: SettingsRuns | None = None
    # fraction of the score's variance explained by each setting alone, normalised to sum to 1; empty with few draws,
    # None before anything was measured
    importance: Mapping[str, float] | None = None
    search_seconds: float = 0.0  # training time of the search
    test_readings: int = 0  # number of times that runs of the sweep were evaluated on the test images
    train_limit: int = 0  # labelled images of the probes on the test images; 0: all
    # command, commit, versions and machine of the process that ran the sweep last; empty if not known
    environment: Mapping[str, Any] = field(default_factory=dict)
    machines: tuple[str, ...] = ()  # that trials ran on, in words
    images: str = ""  # digest of the images that it saw; empty if not known
    sharing: int = 0  # number of trials that could share a GPU; 0 if none did
    seeds_over: int = 0  # number of the first seeds with which all runs of chosen and default settings have ended
    problem: str = ""  # what is missing; empty if the sweep is complete

    @property
    def method(self) -> str:
        return self.planned.method

    @property
    def task(self) -> Task:
        return self.planned.task

    @property
    def is_by_plan(self) -> bool:
        """Whether probes on the test images have the labelled images of the plan; in older versions they had all."""
        return self.train_limit == self.planned.plan.config.data.train_limit

    @property
    def found_better(self) -> bool:
        """Whether the search found settings with a higher score than the default ones."""
        return self.tuned is not None and self.tuned is not self.default

    def protocol(self, metric: Metric) -> Protocol:
        """Return the protocol by which the runs are measured on the test images."""
        return Protocol(self.planned.plan.config, self.train_limit, metric)

    def accuracy(self, settings: Literal["tuned", "default"] = "tuned") -> Interval | None:
        """Return the accuracy of the tuned or the default settings; None if it is not measured."""
        runs = self.tuned if settings == "tuned" else self.default
        return runs.accuracy if runs else None

    @cached_property
    def curve(self) -> TuningCurve | None:
        """The best score after n draws; None before the first draw has finished."""
        return tuning_curve([draw.score for draw in self.draws]) if self.draws else None

    @property
    def choice(self) -> tuple[float, float, float] | None:
        """How well the search could tell its draws apart; None if that is not known.

        The standard deviation of the held-out scores of the draws that finished; that of the score of one setting by
        its seed, without what a seed does to all settings alike; and the chance of such a spread if all draws were
        equally good.
        """
        draws = [draw.score for draw in self.draws if draw.state == "finished"]
        if self.tuned is None or self.default is None or self.tuned is self.default:
            return None
        others = self.default.held_out.by_seed
        both = [(score, others.get(seed)) for seed, score in self.tuned.held_out.by_seed.items()]
        gains = [score - other for score, other in both if other is not None and WORST not in (score, other)]
        known = chance_of_spread(draws, gains)
        return known and (stdev(draws), *known)


def not_begun(planned: PlannedSweep) -> MeasuredSweep:
    """Return a sweep without measurements."""
    return MeasuredSweep(planned, train_limit=planned.plan.config.data.train_limit)


def read_sweep(planned: PlannedSweep, log: SweepLog, metric: Metric = "knn") -> MeasuredSweep:
    """Return the measurements in the log of a sweep; those of ``metric`` on the test images are compared."""
    search = log.of_kind("search")
    over = [trial for trial in search if trial.is_over]
    seconds = sum(trial.seconds for trial in search)
    first = [trial for trial in over if trial.number == 0]
    draws = tuple(Draw.of(trial) for trial in over if trial.number > 0)
    begun = log.last_event("resumed") or log.last_event("started") or {}
    empty = replace(
        not_begun(planned),
        draws=draws,
        default_draw=Draw.of(first[0]) if first else None,
        search_seconds=seconds,
        train_limit=SettingsTest.limit_in(log, planned.plan),
        environment=begun.get("environment") or {},
        images=log.images,
        sharing=max((sharing_a_gpu(each) for each in log.events if each["event"] in LAUNCHES), default=0),
    )
    if not ranked(over):
        reasons = {trial.reason for trial in over if trial.reason}
        return replace(empty, problem=f"no trial measured anything: {'; '.join(sorted(reasons)) or 'none is over'}")
    proposals = ConfirmProposals(planned.plan, log)
    groups = {source: _runs(source, settings, planned, log, metric) for source, settings in proposals.settings.items()}
    known = {source: runs for source, runs in groups.items() if runs is not None}
    tuned = next((runs for source, runs in known.items() if source != BASELINE), None)
    default = known.get(BASELINE) or (tuned if tuned is not None and tuned.settings == planned.plan.start else None)
    compared = footing(planned.plan.space, search)
    seeds_over = _seeds_over(planned, log, proposals.settings)
    return replace(
        empty,
        tuned=tuned,
        default=default if planned.plan.baseline else None,
        importance=importance(planned.plan.space, compared.thinned()),
        test_readings=sum(event["event"] == "test_read" for event in log.events),
        seeds_over=seeds_over,
        problem=_what_is_missing(planned, len(over), tuned, seeds_over),
    )


def _seeds_over(planned: PlannedSweep, log: SweepLog, sources: Iterable[str]) -> int:
    """Return with how many of the first seeds all runs of these settings have ended."""
    over = {trial.id for trial in log.of_kind("confirm") if trial.is_over}
    runs = ([confirming_run(source, seed) for source in sources] for seed in planned.plan.confirming_seeds)
    return len(list(takewhile(over.issuperset, runs)))


def _what_is_missing(planned: PlannedSweep, num_over: int, tuned: SettingsRuns | None, seeds_over: int) -> str:
    if planned.arm == "draws" and num_over < planned.plan.trials:
        return f"{num_over} of {planned.plan.trials} trials of the search are over; another draw may be chosen"
    if tuned is None:
        return f"runs with {seeds_over} of {planned.plan.seeds} other seeds are over; nothing is shown before all are"
    if tuned.all_lost:
        return "every run of the chosen settings was lost"
    return "" if tuned.tested else "the runs of the chosen settings have not read the test images"


def _runs(source: str, settings: Settings, planned: PlannedSweep, log: SweepLog, metric: Metric) -> SettingsRuns | None:
    """Return the runs of given settings; None until all of them have ended."""
    names = {confirming_run(source, seed) for seed in planned.plan.confirming_seeds}
    wanted = [trial for trial in log.of_kind("confirm") if trial.id in names]
    if len(wanted) < planned.plan.seeds or not all(trial.is_over for trial in wanted):
        return None
    seeds = sorted(trial.seed for trial in wanted)
    by_seed = {trial.seed: trial for trial in wanted}
    done = [seed for seed in seeds if by_seed[seed].state == "finished" and by_seed[seed].last is not None]
    held_out = _with_lost(
        seeds,
        {seed: by_seed[seed].objectives[by_seed[seed].epochs_done] for seed in done},
        {seed: answers for seed in done if (answers := by_seed[seed].answers)},
    )
    return SettingsRuns(
        source,
        settings,
        held_out,
        _tested(log, source, seeds, done),
        tuple(SeedCurve.of(by_seed[seed]) for seed in done),
        len(seeds) - len(done),
        metric,
    )


def _tested(log: SweepLog, source: str, seeds: Sequence[int], done: Sequence[int]) -> dict[str, Measurements]:
    """Return the accuracies on the test images by probe; empty unless measured for all finished runs."""
    tested = SettingsTest.of_runs(log, source)
    if not done or not tested.keys() >= set(done):
        return {}
    runs = {seed: tested[seed] for seed in done}
    return {
        probe: _with_lost(
            seeds, dict(zip(done, score.values, strict=True)), dict(zip(done, score.answers, strict=False))
        )
        for probe, score in scores_over_seeds(runs, 1).items()
    }


def _with_lost(seeds: Sequence[int], values: Mapping[int, float], answers: Mapping[int, Answers]) -> Measurements:
    """Return measurements of all seeds; a missing run counts as incorrect on every image."""
    wrong = _all_wrong(next(iter(answers.values()))) if answers else None
    return Measurements.of(
        seeds, [values.get(seed, WORST) for seed in seeds], [answers.get(seed, wrong) for seed in seeds]
    )


def _all_wrong(like: Answers) -> Answers:
    none = base64.b64encode(bytes((like.num_images + 7) // 8)).decode()
    return replace(like, right=(none,) * len(like.right))
