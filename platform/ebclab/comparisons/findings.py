"""Results of a comparison: what its sweeps measured, read from their logs, and the differences between them.

Differences have simultaneous intervals; beside them are probabilities of improvement and gains of tuning.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from statistics import median, stdev
from typing import Any, Literal

import numpy as np

from ebclab.comparisons.plan import Arm, ComparisonFolder, ComparisonPlan, PlannedSweep, Task
from ebclab.comparisons.request import ComparisonRequest, Metric
from ebclab.comparisons.statistics import (
    Runs,
    TuningCurve,
    bootstrap_interval,
    chance_of_spread,
    interquartile_mean,
    probability_of_improvement,
    tuning_curve,
)
from ebclab.config.sections import DataConfig
from ebclab.data.sources.location import last_part
from ebclab.errors import RunError, UserError
from ebclab.evaluation.answers import Answers
from ebclab.evaluation.comparison import CHANCE, Measurements, difference_with_chance, mean_and_interval
from ebclab.interval import Interval
from ebclab.reports.comparable import footing, importance
from ebclab.runs.references import REFERENCES, Name, Protocol, References
from ebclab.sweeps.log import LAUNCHES, LOST, State, SweepLog, Trial, sharing_a_gpu
from ebclab.sweeps.results import BASELINE, SettingsTest, confirming_run, ranked, to_confirm
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
        return self.train_limit == self.planned.config.data.train_limit

    @property
    def found_better(self) -> bool:
        """Whether the search found settings with a higher score than the default ones."""
        return self.tuned is not None and self.tuned is not self.default

    def protocol(self, metric: Metric) -> Protocol:
        """Return the protocol by which the runs were measured on the test images."""
        return self.planned.protocol(metric)._replace(train_limit=self.train_limit)

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


def read_sweep(planned: PlannedSweep, log: SweepLog, metric: Metric = "knn") -> MeasuredSweep:
    """Return the measurements in the log of a sweep; those of ``metric`` on the test images are compared."""
    plan, search = planned.plan, log.of_kind("search")
    over = [trial for trial in search if trial.is_over]
    is_measured = bool(ranked(over))
    shares = importance(plan.space, footing(plan.space, search)) if is_measured else None
    confirmed = to_confirm(plan, log) if is_measured else {}
    train_limit = SettingsTest.limit_in(log, plan)
    seeds_over = _seeds_over(planned, log, confirmed) if is_measured else 0
    runs = {source: _runs(source, settings, planned, log, metric) for source, settings in confirmed.items()}
    tuned = next((each for source, each in runs.items() if each and source != BASELINE), None)
    default = runs.get(BASELINE) or (tuned if tuned is not None and tuned.settings == plan.start else None)
    if is_measured:
        problem = _what_is_missing(planned, len(over), tuned, seeds_over)
    else:
        reasons = sorted({trial.reason for trial in over if trial.reason})
        problem = f"no trial measured anything: {'; '.join(reasons) or 'none is over'}"
    return MeasuredSweep(
        planned,
        draws=tuple(Draw.of(trial) for trial in over if trial.number > 0),
        default_draw=next((Draw.of(trial) for trial in over if trial.number == 0), None),
        tuned=tuned,
        default=default if plan.baseline else None,
        importance=shares,
        search_seconds=sum(trial.seconds for trial in search),
        test_readings=sum(event["event"] == "test_read" for event in log.events),
        train_limit=train_limit,
        environment=log.launch.get("environment") or {},
        images=log.images,
        sharing=max((sharing_a_gpu(each) for each in log.events if each["event"] in LAUNCHES), default=0),
        seeds_over=seeds_over,
        problem=problem,
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
    trials = {seed: log.trials.get(confirming_run(source, seed)) for seed in planned.plan.confirming_seeds}
    by_seed = {seed: trial for seed, trial in trials.items() if trial is not None and trial.is_over}
    if len(by_seed) < len(trials):
        return None
    seeds = list(by_seed)
    done = [seed for seed in seeds if by_seed[seed].state == "finished" and by_seed[seed].last is not None]
    held_out = _with_lost(
        seeds,
        {seed: by_seed[seed].objectives[by_seed[seed].epochs_done] for seed in done},
        {seed: answers for seed in done if (answers := by_seed[seed].answers)},
    )
    tested = (SettingsTest.measured(log, source, done) if done else None) or {}
    return SettingsRuns(
        source,
        settings,
        held_out,
        {probe: _with_lost(seeds, each.by_seed, each.answers) for probe, each in tested.items()},
        tuple(SeedCurve.of(by_seed[seed]) for seed in done),
        len(seeds) - len(done),
        metric,
    )


def _with_lost(seeds: Sequence[int], values: Mapping[int, float], answers: Mapping[int, Answers]) -> Measurements:
    """Return measurements of all seeds; a missing run counts as incorrect on every image."""
    wrong = None
    if like := next(iter(answers.values()), None):
        none_right = base64.b64encode(bytes((like.num_images + 7) // 8)).decode()
        wrong = replace(like, right=(none_right,) * len(like.right))
    return Measurements.of(
        seeds, [values.get(seed, WORST) for seed in seeds], [answers.get(seed, wrong) for seed in seeds]
    )


Family = Literal["tuned", "default", "gain", "asked", "practice", "learnt", "learnt by default"]
"""Groups of differences whose intervals have simultaneous coverage: between tuned methods, between methods at their
default settings, of tuned over default settings, of the questions of the request, between methods tuned by TPE and
ASHA, and of tuned and of default settings over raw pixels and the untrained encoder."""
_LEARNT: tuple[tuple[Family, Literal["tuned", "default"]], ...] = (
    ("learnt", "tuned"),
    ("learnt by default", "default"),
)
Verdict = Literal["ahead", "behind", "equal", "open", "no interval"]


def verdict_of(whole: Interval, narrow: Interval, margin: float) -> Verdict:
    """Return the conclusion from the interval of a difference, and from that of two one-sided tests.

    The narrow interval may miss with twice the chance, so that each of its ends is a one-sided test with the chance of
    the whole one (Schuirmann, 1987). If it lies within [-margin, margin], the verdict is "equal" (equivalence), even if
    the whole interval does not contain 0. The chance of a wrong verdict is still that of the whole interval: of a
    difference beyond the margin, "equal" is the most frequent one; of a tie, a lead is.
    """
    if whole.low is None or whole.high is None or narrow.low is None or narrow.high is None:
        return "no interval"
    if -margin <= narrow.low and narrow.high <= margin:
        return "equal"
    return "ahead" if whole.low > 0 else "behind" if whole.high < 0 else "open"


@dataclass(frozen=True)
class Side:
    """One side of a difference."""

    method: str  # name of the method
    task: Task  # task it was measured on
    # "tuned" or "default", or a reference: raw pixels or the untrained encoder beside runs of the method
    settings: Literal["tuned", "default"] | Name = "tuned"
    arm: Arm = "draws"  # how the settings were searched


@dataclass(frozen=True)
class Gap:
    """Difference between two sides."""

    family: Family  # the family of differences whose intervals have simultaneous coverage
    one: Side  # the first side
    other: Side  # the second side
    difference: Interval  # accuracy of ``one`` minus that of ``other``, with its interval; in [-1, 1]
    verdict: Verdict  # conclusion from the interval, two one-sided tests and the margin
    by_seed: dict[int, float]  # the difference at each seed in common

    @property
    def pair(self) -> tuple[str, str, Task]:
        """The methods of both sides, and the task of the first."""
        return self.one.method, self.other.method, self.one.task

    @property
    def name(self) -> str:
        return f"{self.one.method} over {self.other.method}"

    @property
    def ahead(self) -> str:
        """At how many of the seeds in common the first side is ahead, as text."""
        ties = sum(gain == 0 for gain in self.by_seed.values())
        return f"{self.seeds_ahead} of {len(self.by_seed)}" + (f", {ties} equal" if ties else "")

    @property
    def seeds_ahead(self) -> int:
        return sum(gain > 0 for gain in self.by_seed.values())

    @property
    def lead(self) -> tuple[Side, Side] | None:
        """The side that is ahead beyond noise, and the other one; None if neither is."""
        if self.verdict not in ("ahead", "behind"):
            return None
        return (self.one, self.other) if self.verdict == "ahead" else (self.other, self.one)


@dataclass(frozen=True)
class Pace:
    """Time to a score of a method on a task: medians over the seeds of its tuned settings."""

    method: str  # name of the method
    task: Task  # task it was measured on
    goal: str  # "target", or the method whose final score is to be reached
    score: float  # held-out score to reach, in [0, 1]
    epochs: float | None  # epochs until the score is reached; None if the median run does not reach it
    seconds: float | None  # training time until the score is reached; None in the same case
    share: float | None  # ``epochs`` as a fraction of the epochs of a run; None in the same case


@dataclass(frozen=True)
class ComparisonFindings:
    """Measurements of the sweeps of a comparison, and its results, computed lazily."""

    plan: ComparisonPlan
    sweeps: tuple[MeasuredSweep, ...] = ()  # the sweeps that have a log, in the order of the plan
    references: References = field(default_factory=References)  # what raw pixels and untrained encoders score

    @property
    def request(self) -> ComparisonRequest:
        return self.plan.request

    @property
    def tasks(self) -> tuple[Task, ...]:
        return self.plan.tasks

    @property
    def margin(self) -> float:
        """Smallest relevant difference, in [0, 1]."""
        return self.request.margin / 100

    @property
    def protocols(self) -> list[tuple[Protocol, Sequence[int]]]:
        """What references are measured by, with the seeds of the runs beside them."""
        metric = self.request.metric
        return [(each.protocol(metric), each.planned.plan.confirming_seeds) for each in self.sweeps]

    def images_of(self, data: DataConfig) -> set[str]:
        """Return the digests of the images that sweeps of this data saw."""
        return {each.images for each in self.sweeps if each.planned.config.data == data} - {""}

    @cached_property
    def searches(self) -> tuple[MeasuredSweep, ...]:
        """The random searches of each method on each task, in the order of tasks."""
        return tuple(each for each in self.sweeps if each.planned.arm == "draws")

    def named(self, task: Task) -> str:
        """Return the name of a task, without parts that all tasks share; the batch size is always included."""
        parts = [f"batch size {task.batch_size}"]
        datasets = {each.dataset: last_part(each.dataset) for each in self.tasks}
        if len(datasets) > 1:
            parts.append(datasets[task.dataset] if len({*datasets.values()}) == len(datasets) else task.dataset)
        if self.request.repeats > 1:
            parts.append(f"repeat {task.repeat + 1}")
        return ", ".join(parts)

    def at(self, place: Side | MeasuredSweep) -> str:
        """Return method and task of a side or a sweep as part of a sentence."""
        return f"{place.method} at {self.named(place.task)}"

    def sweep(self, side: Side) -> MeasuredSweep | None:
        """Return the sweep in which a side was searched; None if it has not started."""
        wanted = (side.method, side.task, side.arm)
        return next((each for each in self.sweeps if (each.method, each.task, each.planned.arm) == wanted), None)

    def runs(self, side: Side) -> SettingsRuns | None:
        """Return the runs of a side; None if there are none yet, and for references."""
        sweep = self.sweep(side)
        if sweep is None or side.settings in REFERENCES:
            return None
        return sweep.tuned if side.settings == "tuned" else sweep.default

    def score(self, side: Side) -> Measurements | None:
        """Return the test accuracies of a side; None if not measured yet."""
        sweep = self.sweep(side)
        for name in REFERENCES:
            if sweep is not None and side.settings == name:
                seeds = sweep.planned.plan.confirming_seeds
                return self.references.scores(name, sweep.protocol(self.request.metric), seeds)
        runs = self.runs(side)
        return runs.score if runs else None

    @cached_property
    def references_at(self) -> dict[tuple[Task, Name, Interval], tuple[str, ...]]:
        """Accuracy of each reference on each task, with the methods whose runs have it as a reference."""
        found: dict[tuple[Task, Name, Interval], tuple[str, ...]] = {}
        for name in REFERENCES:
            for each in self.searches:
                measured = self.score(Side(each.method, each.task, name))
                if measured is not None:
                    key = each.task, name, mean_and_interval(measured, 1, is_rate=True)
                    found[key] = (*found.get(key, ()), each.method)
        return found

    @cached_property
    def gaps(self) -> tuple[Gap, ...]:
        """All differences; the intervals of a family have simultaneous coverage."""
        return tuple(gap for family, sides in self._asked_for().items() for gap in self._family(family, sides))

    def gaps_of(self, family: Family) -> tuple[Gap, ...]:
        """Return the differences of a family."""
        return tuple(gap for gap in self.gaps if gap.family == family)

    def by_pair(self, family: Family) -> dict[tuple[str, str, Task], Gap]:
        """Return the differences of a family by methods and task."""
        return {gap.pair: gap for gap in self.gaps_of(family)}

    def _asked_for(self) -> dict[Family, list[tuple[Side, Side]]]:
        """Return the two sides of each planned difference by family, whether or not it is measured yet."""
        pairs = [(one, other, task) for task in self.tasks for one, other in self.request.pairs]
        gains = [(method, task) for task in self.tasks for method in self.request.methods]
        places = dict.fromkeys((task.dataset, task.repeat) for task in self.tasks)
        wanted: dict[Family, list[tuple[Side, Side]]] = {
            "tuned": [(Side(one, task), Side(other, task)) for one, other, task in pairs],
            "default": [(Side(one, task, "default"), Side(other, task, "default")) for one, other, task in pairs],
            "gain": [(Side(method, task), Side(method, task, "default")) for method, task in gains],
            "asked": [
                (Side(one, Task(dataset, size, repeat)), Side(other, Task(dataset, other_size, repeat)))
                for (one, size), (other, other_size) in self.request.asked
                for dataset, repeat in places
            ],
        }
        for family, settings in _LEARNT:
            wanted[family] = [
                (Side(method, task, settings), Side(method, task, name))
                for method, task in gains
                for name in REFERENCES
            ]
        if self.request.practice_seconds:
            wanted["practice"] = [
                (Side(one, task, arm="practice"), Side(other, task, arm="practice")) for one, other, task in pairs
            ]
        return wanted

    def _family(self, family: Family, wanted: Sequence[tuple[Side, Side]]) -> list[Gap]:
        """Return the measured differences of a family; the error probability is divided among all planned ones."""
        gaps = []
        for one, other in wanted:
            mine, theirs = self.score(one), self.score(other)
            if mine is None or theirs is None or self.runs(one) is self.runs(other) or not self._alike(one, other):
                continue  # if the search found nothing better, tuned and default settings are the same runs
            gains = {
                seed: score - theirs.by_seed[seed] for seed, score in mine.by_seed.items() if seed in theirs.by_seed
            }
            found, narrow = (difference_with_chance(mine, theirs, n * CHANCE / len(wanted)) for n in (1, 2))
            gaps.append(Gap(family, one, other, found, verdict_of(found, narrow, self.margin), gains))
        return gaps

    def _alike(self, one: Side, other: Side) -> bool:
        """Return whether the accuracies of both sides have the labelled images of the plan, or of an older version."""
        sweeps = [self.sweep(side) for side in (one, other)]
        return len({sweep.is_by_plan for sweep in sweeps if sweep}) == 1

    @cached_property
    def whole(self) -> tuple[str, ...]:
        """Methods whose tuned settings are measured on every task; only these are compared over tasks."""
        return tuple(
            method
            for method in self.request.methods
            if all(self.score(Side(method, task)) is not None for task in self.tasks)
        )

    def scores_of(self, method: str) -> Runs:
        """Return the accuracies of a method's tuned settings, one array per task."""
        found = [self.score(Side(method, task)) for task in self.tasks]
        return [np.asarray(list(measured.by_seed.values())) for measured in found if measured is not None]

    @cached_property
    def overall(self) -> dict[str, Interval]:
        """Interquartile mean of the accuracies of each method's tuned settings over all tasks."""
        found = {}
        for method in self.whole:
            runs = self.scores_of(method)
            ends = bootstrap_interval(interquartile_mean, runs, generator=np.random.default_rng(0))
            found[method] = Interval(float(interquartile_mean(runs)), *ends)
        return found

    @cached_property
    def improvements(self) -> dict[tuple[str, str], Interval]:
        """Probability that a run of a method scores higher than a run of another, over all tasks."""
        found = {}
        for one in self.whole:
            for other in (name for name in self.whole if name != one):
                runs = self.scores_of(one), self.scores_of(other)
                ends = bootstrap_interval(probability_of_improvement, *runs, generator=np.random.default_rng(0))
                found[one, other] = Interval(float(probability_of_improvement(*runs)), *ends)
        return found

    @property
    def pairs_done(self) -> tuple[int, int]:
        """How many of the planned differences between tuned methods are final, and how many are planned."""
        done = [
            gap
            for gap in self.gaps_of("tuned")
            if not any(each.problem for side in (gap.one, gap.other) if (each := self.sweep(side)))
        ]
        return len(done), len(self._asked_for()["tuned"])

    @property
    def shared_gpu(self) -> str:
        """A caveat about seconds, after a space, where trials shared a GPU; empty if none did."""
        most = max((each.sharing for each in self.sweeps), default=0)
        return f" Up to {most} runs shared a GPU: the seconds of a run depend on what ran beside it." * (most > 1)

    @cached_property
    def paces(self) -> tuple[Pace, ...]:
        """Time of each method to the target, and to the final score of the methods it is compared with."""
        found = []
        for each in self.searches:
            runs = each.tuned
            if runs is None:
                continue
            if self.request.target is not None:
                found.append(_pace(each, runs, "target", self.request.target / 100))
            others = [other for one, other in self.request.pairs if one == each.method]
            for other in others:
                theirs = self.runs(Side(other, each.task))
                if theirs is not None and theirs.curves:
                    final = sum(curve.scores[-1] for curve in theirs.curves) / len(theirs.curves)
                    found.append(_pace(each, runs, other, final))
        return tuple(found)

    def require_measured(self, where: str) -> None:
        """Refuse a comparison without results, in the folder ``where``."""
        if not any(sweep.tuned for sweep in self.sweeps):
            why = "; ".join(f"{sweep.planned.name}: {sweep.problem}" for sweep in self.sweeps) or "no sweep has begun"
            raise RunError(f"{where}: nothing to show yet: {why}")

    def require_same_images(self, where: str) -> None:
        """Refuse sweeps, in the folder ``where``, that saw other images, whether now or in earlier launches."""
        seen: dict[str, MeasuredSweep] = {}
        for sweep in self.sweeps:
            first = seen.setdefault(str(sweep.planned.config.data), sweep)
            if sweep.images and first.images and sweep.images != first.images:
                raise UserError(
                    f"{where}: {sweep.planned.name} saw other images than {first.planned.name}, got "
                    f"{sweep.images[:20]}, expected {first.images[:20]}; restore them, delete the search that saw "
                    "others, and repeat the command"
                )


def _pace(sweep: MeasuredSweep, runs: SettingsRuns, goal: str, score: float) -> Pace:
    """Return the median time to a score; runs that never reach it, or were lost, count as infinite."""
    reached = [curve.reaches(score) for curve in runs.curves] + [None] * runs.lost
    epochs = median(found[0] if found else math.inf for found in reached)
    seconds = median(found[1] if found else math.inf for found in reached)
    if not math.isfinite(epochs):
        return Pace(sweep.method, sweep.task, goal, score, None, None, None)
    budget = sweep.planned.config.training.epochs
    return Pace(sweep.method, sweep.task, goal, score, epochs, seconds, epochs / budget)


def read_findings(folder: ComparisonFolder, plan: ComparisonPlan) -> ComparisonFindings:
    """Return the results so far of the sweeps in a comparison's folder; Ray is not needed."""
    found = []
    for planned in plan.sweeps:
        sweep = folder.sweep(planned.name).of("reader").pull()
        if sweep.plan.is_file() and sweep.log.is_file():
            measured = read_sweep(planned, sweep.read_log(), plan.request.metric)
            found.append(replace(measured, machines=tuple(sweep.machines(measured.environment))))
    return ComparisonFindings(plan, tuple(found), folder.read_references())
