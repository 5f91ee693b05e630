"""Measurements of the sweeps of a comparison, read from their logs: draws, tuned and default settings by seed."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ebclab.comparisons.plan import Arm, ComparisonFolder, ComparisonPlan, PlannedSweep, Task
from ebclab.comparisons.request import Metric
from ebclab.errors import RunError
from ebclab.evaluation.answers import Answers
from ebclab.evaluation.comparison import Measurements
from ebclab.reports.comparable import footing, importance
from ebclab.runs.references import Name, Protocol, References
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.proposals import ConfirmProposals, ranked
from ebclab.sweeps.results import BASELINE, SettingsTest
from ebclab.sweeps.space.check import own_settings
from ebclab.sweeps.trial import LOST, State, Trial

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
        """Whether it diverged or failed."""
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
    settings: dict[str, Any]  # searched settings by dotted key
    held_out: Measurements  # the objective of each run
    tested: dict[str, Measurements]  # accuracies on the test images by probe; empty if they have not been measured
    curves: tuple[SeedCurve, ...]  # learning curves of the runs that finished
    lost: int  # number of runs that did not finish: they diverged, were stopped due to collapse, or failed

    def score(self, metric: Metric) -> Measurements | None:
        """Return the accuracies on the test images that are compared; None if they have not been measured."""
        return self.tested.get(metric)

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
    problem: str = ""  # what is missing; empty if the sweep is complete

    @property
    def is_by_plan(self) -> bool:
        """Whether probes on the test images have the labelled images of the plan; in older versions they had all."""
        return self.train_limit == self.planned.plan.config.data.train_limit

    @property
    def found_better(self) -> bool:
        """Whether the search found settings with a higher score than the default ones."""
        return self.tuned is not None and self.tuned is not self.default


@dataclass(frozen=True)
class Measured:
    """Measurements of all sweeps of a comparison."""

    plan: ComparisonPlan
    sweeps: tuple[MeasuredSweep, ...]  # the sweeps that have a log, in the order of the plan
    references: References = field(default_factory=References)  # what raw pixels and untrained encoders score

    def sweep(self, method: str, task: Task, arm: Arm = "draws") -> MeasuredSweep | None:
        """Return the measurements of a sweep; None if it has not started."""
        for each in self.sweeps:
            if (each.planned.method, each.planned.task, each.planned.arm) == (method, task, arm):
                return each
        return None

    def reference(self, name: Name, method: str, task: Task) -> Measurements | None:
        """Return what a reference scores beside the runs of a method, by their protocol; None if not measured."""
        sweep = self.sweep(method, task)
        if sweep is None:
            return None
        plan = sweep.planned.plan
        return self.references.scores(name, protocol_of(self.plan, sweep), plan.confirming_seeds)


def not_begun(planned: PlannedSweep) -> MeasuredSweep:
    """Return a sweep without measurements."""
    return MeasuredSweep(planned, train_limit=planned.plan.config.data.train_limit)


def protocol_of(plan: ComparisonPlan, sweep: MeasuredSweep) -> Protocol:
    """Return the protocol by which the runs of a sweep are measured on the test images."""
    return Protocol(sweep.planned.plan.config, sweep.train_limit, plan.request.metric)


def read_measured(folder: ComparisonFolder, plan: ComparisonPlan) -> Measured:
    """Return the measurements so far of the sweeps in a comparison's folder; Ray is not needed."""
    found = []
    for planned in plan.sweeps:
        sweep = folder.sweep(planned.name).of("reader").pull()
        if sweep.plan.is_file() and sweep.log.is_file():
            found.append(read_sweep(planned, sweep.read_log()))
    return Measured(plan, tuple(found), References.read(folder.references, folder.address_of(folder.references)))


def read_sweep(planned: PlannedSweep, log: SweepLog) -> MeasuredSweep:
    """Return the measurements in the log of a sweep."""
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
    )
    if not ranked(over):
        reasons = {trial.reason for trial in over if trial.reason}
        return replace(empty, problem=f"no trial measured anything: {'; '.join(sorted(reasons)) or 'none is over'}")
    proposals = ConfirmProposals(planned.plan, log)
    groups = {source: _runs(source, settings, planned, log) for source, settings in proposals.settings.items()}
    known = {source: runs for source, runs in groups.items() if runs is not None}
    own = own_settings(planned.plan.space, planned.plan.config)
    tuned = next((runs for source, runs in known.items() if source != BASELINE), None)
    default = known.get(BASELINE) or (tuned if tuned is not None and tuned.settings == own else None)
    compared = footing(planned.plan.space, search)
    return replace(
        empty,
        tuned=tuned,
        default=default if planned.plan.baseline else None,
        importance=importance(planned.plan.space, compared.thinned()),
        test_readings=sum(event["event"] == "test_read" for event in log.events),
        problem=_what_is_missing(planned, len(over), tuned),
    )


def _what_is_missing(planned: PlannedSweep, num_over: int, tuned: SettingsRuns | None) -> str:
    if planned.arm == "draws" and num_over < planned.plan.trials:
        return f"{num_over} of {planned.plan.trials} trials of the search are over; another draw may be chosen"
    if tuned is None:
        return "the chosen settings have not been run with other seeds yet"
    if tuned.lost == len(tuned.held_out.by_seed):
        return "every run of the chosen settings was lost"
    return "" if tuned.tested else "the runs of the chosen settings have not read the test images"


def _runs(source: str, settings: dict[str, Any], planned: PlannedSweep, log: SweepLog) -> SettingsRuns | None:
    """Return the runs of given settings; None until all of them have ended."""
    wanted = [trial for trial in log.of_kind("confirm") if trial.id.startswith(f"confirm-{source}-seed")]
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
    )


def _tested(log: SweepLog, source: str, seeds: Sequence[int], done: Sequence[int]) -> dict[str, Measurements]:
    """Return the accuracies on the test images by probe; empty unless measured for exactly the finished runs."""
    for found in SettingsTest.all_in(log):
        if found.trial == source and sorted(found.seeds) == list(done):
            return {
                probe: _with_lost(
                    seeds,
                    dict(zip(found.seeds, score.values, strict=True)),
                    dict(zip(found.seeds, score.answers, strict=False)),
                )
                for probe, score in found.scores.items()
            }
    return {}


def _with_lost(seeds: Sequence[int], values: Mapping[int, float], answers: Mapping[int, Answers]) -> Measurements:
    """Return measurements of all seeds; a missing run counts as incorrect on every image."""
    wrong = _all_wrong(next(iter(answers.values()))) if answers else None
    return Measurements.of(
        seeds, [values.get(seed, WORST) for seed in seeds], [answers.get(seed, wrong) for seed in seeds]
    )


def _all_wrong(like: Answers) -> Answers:
    """Return the answers of a run that is incorrect on every image."""
    none = base64.b64encode(bytes((like.num_images + 7) // 8)).decode()
    return replace(like, right=(none,) * len(like.right))


def require_measured(measured: Measured, where: str) -> None:
    """Refuse a comparison without results."""
    if not any(sweep.tuned for sweep in measured.sweeps):
        why = "; ".join(f"{sweep.planned.name}: {sweep.problem}" for sweep in measured.sweeps) or "no sweep has begun"
        raise RunError(f"{where}: nothing to show yet: {why}")
