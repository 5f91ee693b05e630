"""Results of a comparison: differences with simultaneous intervals, probabilities of improvement, gains of tuning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median, stdev
from typing import Literal

import numpy as np

from ebclab.comparisons.measured import WORST, Measured, MeasuredSweep, SettingsRuns
from ebclab.comparisons.plan import Arm, Task
from ebclab.comparisons.request import ComparisonRequest, Question
from ebclab.comparisons.statistics import (
    Runs,
    TuningCurve,
    bootstrap_interval,
    chance_of_spread,
    interquartile_mean,
    probability_of_improvement,
    tuning_curve,
)
from ebclab.evaluation.comparison import (
    CHANCE,
    Measurements,
    difference_with_chance,
    mean_and_interval,
)
from ebclab.interval import Interval
from ebclab.runs.references import REFERENCES, Name

Family = Literal["tuned", "default", "gain", "asked", "practice", "learnt", "learnt by default"]
"""Groups of differences whose intervals have simultaneous coverage: between tuned methods, between methods at their
default settings, of tuned over default settings, of the questions of the request, between methods tuned by TPE and
ASHA, and of tuned and of default settings over raw pixels and the untrained encoder."""
_LEARNT: tuple[tuple[Family, Literal["tuned", "default"]], ...] = (
    ("learnt", "tuned"),
    ("learnt by default", "default"),
)
Verdict = Literal["ahead", "behind", "equal", "open", "no interval"]


def verdict_of(low: float | None, high: float | None, margin: float) -> Verdict:
    """Return the conclusion from the interval of a difference.

    If the interval lies within [-margin, margin], the verdict is "equal" (equivalence), even if it does not contain 0.
    """
    if low is None or high is None:
        return "no interval"
    if -margin <= low and high <= margin:
        return "equal"
    return "ahead" if low > 0 else "behind" if high < 0 else "open"


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
    seeds_ahead: int  # number of seeds in common for which ``one`` scored higher
    seeds: int  # number of seeds in common

    def verdict(self, margin: float) -> Verdict:
        """Return the conclusion from the interval, with the smallest relevant difference, in [0, 1]."""
        return verdict_of(self.difference.low, self.difference.high, margin)


@dataclass(frozen=True)
class MethodAt:
    """Results of one method on one task."""

    sweep: MeasuredSweep  # measurements of its sweep
    tuned: Interval | None  # accuracy of the tuned settings, with its individual interval; None if not measured yet
    default: Interval | None  # accuracy of the default settings, likewise
    curve: TuningCurve | None  # best score after n draws; None before the first draw has finished

    @property
    def method(self) -> str:
        return self.sweep.planned.method

    @property
    def task(self) -> Task:
        return self.sweep.planned.task


@dataclass(frozen=True)
class Improvement:
    """Probability that a run of one method scores higher than a run of another, over tasks."""

    one: str  # the first method
    other: str  # the second method
    probability: Interval  # probability of improvement, in [0, 1]


@dataclass(frozen=True)
class Overall:
    """Results of a method over all tasks."""

    method: str  # name of the method
    iqm: Interval  # interquartile mean of the accuracies of its tuned settings
    search_seconds: float  # training time of its searches
    lost: int  # number of draws that diverged or failed
    draws: int  # number of draws


@dataclass(frozen=True)
class SearchChoice:
    """How well a search could tell its draws apart."""

    at: MethodAt  # the method and the task
    spread: float  # standard deviation of the held-out scores of the draws that finished
    noise: float  # that of the score of one setting by its seed, without what a seed does to all settings alike
    chance: float  # probability of such a spread if all draws were equally good


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
    """Results of a comparison, computed lazily from the measurements."""

    measured: Measured  # measurements of its sweeps

    @property
    def request(self) -> ComparisonRequest:
        return self.measured.plan.request

    @property
    def tasks(self) -> tuple[Task, ...]:
        return self.measured.plan.tasks

    @property
    def margin(self) -> float:
        """Smallest relevant difference, in [0, 1]."""
        return self.request.margin / 100

    def runs(self, side: Side) -> SettingsRuns | None:
        """Return the runs of a side; None if there are none yet, and for references."""
        if side.settings in REFERENCES:
            return None
        sweep = self._sweep(side)
        return None if sweep is None else sweep.tuned if side.settings == "tuned" else sweep.default

    def _sweep(self, side: Side) -> MeasuredSweep | None:
        return self.measured.sweep(side.method, side.task, side.arm)

    def score(self, side: Side) -> Measurements | None:
        """Return the test accuracies of a side; None if not measured yet."""
        for name in REFERENCES:
            if side.settings == name:
                return self.measured.reference(name, side.method, side.task)
        runs = self.runs(side)
        return None if runs is None else runs.score(self.request.metric)

    @cached_property
    def methods_at(self) -> tuple[MethodAt, ...]:
        """Results of each method on each task with random search, in the order of tasks."""
        found = []
        for task in self.tasks:
            for method in self.request.methods:
                sweep = self.measured.sweep(method, task)
                if sweep is None:
                    continue
                scores = [draw.score for draw in sweep.draws]
                found.append(
                    MethodAt(
                        sweep,
                        self._interval(Side(method, task)),
                        self._interval(Side(method, task, "default")),
                        tuning_curve(scores) if scores else None,
                    )
                )
        return tuple(found)

    @cached_property
    def references_at(self) -> dict[tuple[Task, Name, Interval], tuple[str, ...]]:
        """Accuracy of each reference on each task, with the methods whose runs have it as a reference."""
        found: dict[tuple[Task, Name, Interval], tuple[str, ...]] = {}
        for name in REFERENCES:
            for each in self.methods_at:
                value = self._interval(Side(each.method, each.task, name))
                if value is not None:
                    key = each.task, name, value
                    found[key] = (*found.get(key, ()), each.method)
        return found

    def _interval(self, side: Side) -> Interval | None:
        measured = self.score(side)
        return None if measured is None else mean_and_interval(measured, 1, is_rate=True)

    @cached_property
    def gaps(self) -> tuple[Gap, ...]:
        """All differences; the intervals of a family have simultaneous coverage."""
        return tuple(gap for family, sides in self._asked_for().items() for gap in self._family(family, sides))

    def gaps_of(self, family: Family) -> tuple[Gap, ...]:
        """Return the differences of a family."""
        return tuple(gap for gap in self.gaps if gap.family == family)

    def _asked_for(self) -> dict[Family, list[tuple[Side, Side]]]:
        """Return the two sides of each planned difference by family, whether or not it is measured yet."""
        pairs = [(one, other, task) for task in self.tasks for one, other in self.request.pairs]
        gains = [(method, task) for task in self.tasks for method in self.request.methods]
        wanted: dict[Family, list[tuple[Side, Side]]] = {
            "tuned": [(Side(one, task), Side(other, task)) for one, other, task in pairs],
            "default": [(Side(one, task, "default"), Side(other, task, "default")) for one, other, task in pairs],
            "gain": [(Side(method, task), Side(method, task, "default")) for method, task in gains],
            "asked": [sides for question in self.request.asked for sides in self._sides(question)],
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

    def _sides(self, question: Question) -> list[tuple[Side, Side]]:
        """Return the two sides of a question for each dataset and repeat."""
        places = dict.fromkeys((task.dataset, task.repeat) for task in self.tasks)
        one, other = question
        return [
            (Side(one[0], Task(dataset, one[1], repeat)), Side(other[0], Task(dataset, other[1], repeat)))
            for dataset, repeat in places
        ]

    def _family(self, family: Family, wanted: Sequence[tuple[Side, Side]]) -> list[Gap]:
        """Return the measured differences of a family; the error probability is divided among all planned ones."""
        gaps = []
        for one, other in wanted:
            mine, theirs = self.score(one), self.score(other)
            if mine is None or theirs is None or self.runs(one) is self.runs(other) or not self._alike(one, other):
                continue  # if the search found nothing better, tuned and default settings are the same runs
            common = [seed for seed in mine.by_seed if seed in theirs.by_seed]
            ahead = sum(mine.by_seed[seed] > theirs.by_seed[seed] for seed in common)
            found = difference_with_chance(mine, theirs, CHANCE / len(wanted))
            gaps.append(Gap(family, one, other, found, ahead, len(common)))
        return gaps

    def _alike(self, one: Side, other: Side) -> bool:
        """Return whether the accuracies of both sides have the labelled images of the plan, or of an older version."""
        sweeps = [self._sweep(side) for side in (one, other)]
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
    def overall(self) -> tuple[Overall, ...]:
        """Results of each method over all tasks, in the order of the request."""
        found = []
        for method in self.whole:
            runs = self.scores_of(method)
            low, high = bootstrap_interval(interquartile_mean, runs, generator=np.random.default_rng(0))
            mine = [each.sweep for each in self.methods_at if each.method == method]
            draws = [draw for sweep in mine for draw in sweep.draws]
            found.append(
                Overall(
                    method,
                    Interval(float(interquartile_mean(runs)), low, high),
                    sum(sweep.search_seconds for sweep in mine),
                    sum(draw.is_lost for draw in draws),
                    len(draws),
                )
            )
        return tuple(found)

    @cached_property
    def improvements(self) -> tuple[Improvement, ...]:
        """Probability of improvement of every method over every other, over all tasks."""
        found = []
        for one in self.whole:
            for other in (name for name in self.whole if name != one):
                runs = self.scores_of(one), self.scores_of(other)
                low, high = bootstrap_interval(probability_of_improvement, *runs, generator=np.random.default_rng(0))
                found.append(Improvement(one, other, Interval(float(probability_of_improvement(*runs)), low, high)))
        return tuple(found)

    @cached_property
    def choices(self) -> tuple[SearchChoice, ...]:
        """How well each search could choose, where it is known."""
        found = []
        for each in self.methods_at:
            draws = [draw.score for draw in each.sweep.draws if draw.state == "finished"]
            tuned, default = each.sweep.tuned, each.sweep.default
            if tuned is None or default is None or tuned is default:
                continue
            both = [(score, default.held_out.by_seed.get(seed)) for seed, score in tuned.held_out.by_seed.items()]
            gains = [score - other for score, other in both if other is not None and WORST not in (score, other)]
            if known := chance_of_spread(draws, gains):
                found.append(SearchChoice(each, stdev(draws), *known))
        return tuple(found)

    @property
    def pairs_done(self) -> tuple[int, int]:
        """How many of the planned differences between tuned methods are final, and how many are planned."""
        done = [
            gap
            for gap in self.gaps_of("tuned")
            if not any(each.problem for side in (gap.one, gap.other) if (each := self._sweep(side)))
        ]
        return len(done), len(self._asked_for()["tuned"])

    @cached_property
    def paces(self) -> tuple[Pace, ...]:
        """Time of each method to the target, and to the final score of the methods it is compared with."""
        found = []
        for each in self.methods_at:
            runs = each.sweep.tuned
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


def _pace(at: MethodAt, runs: SettingsRuns, goal: str, score: float) -> Pace:
    """Return the median time to a score; runs that never reach it, or were lost, count as infinite."""
    reached = [curve.reaches(score) for curve in runs.curves] + [None] * runs.lost
    epochs = median(found[0] if found else math.inf for found in reached)
    seconds = median(found[1] if found else math.inf for found in reached)
    if not math.isfinite(epochs):
        return Pace(at.method, at.task, goal, score, None, None, None)
    budget = at.sweep.planned.plan.config.training.epochs
    return Pace(at.method, at.task, goal, score, epochs, seconds, epochs / budget)
