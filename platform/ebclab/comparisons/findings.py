"""Results of a comparison: differences with simultaneous intervals, probabilities of improvement, gains of tuning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Literal

import numpy as np

from ebclab.comparisons.measured import MeasuredSweep, SettingsRuns, read_sweep
from ebclab.comparisons.plan import Arm, ComparisonFolder, ComparisonPlan, Task
from ebclab.comparisons.request import ComparisonRequest
from ebclab.comparisons.statistics import (
    Runs,
    bootstrap_interval,
    interquartile_mean,
    probability_of_improvement,
)
from ebclab.data.sources.location import last_part
from ebclab.errors import RunError, UserError
from ebclab.evaluation.comparison import CHANCE, Measurements, difference_with_chance, mean_and_interval
from ebclab.interval import Interval
from ebclab.runs.references import REFERENCES, Name, References

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
    verdict: Verdict  # conclusion from the interval and the margin
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
            found = difference_with_chance(mine, theirs, CHANCE / len(wanted))
            verdict = verdict_of(found.low, found.high, self.margin)
            gaps.append(Gap(family, one, other, found, verdict, gains))
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
            low, high = bootstrap_interval(interquartile_mean, runs, generator=np.random.default_rng(0))
            found[method] = Interval(float(interquartile_mean(runs)), low, high)
        return found

    @cached_property
    def improvements(self) -> dict[tuple[str, str], Interval]:
        """Probability that a run of a method scores higher than a run of another, over all tasks."""
        found = {}
        for one in self.whole:
            for other in (name for name in self.whole if name != one):
                runs = self.scores_of(one), self.scores_of(other)
                low, high = bootstrap_interval(probability_of_improvement, *runs, generator=np.random.default_rng(0))
                ends = (low, high) if low < high else (None, None)  # runs that all agree say nothing of others
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
            first = seen.setdefault(str(sweep.planned.plan.config.data), sweep)
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
    budget = sweep.planned.plan.config.training.epochs
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
