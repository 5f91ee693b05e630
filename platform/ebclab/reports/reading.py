"""Read a sweep's folder for a report; nothing is written, and Ray is not needed.

Also in words: raw pixels and the untrained encoder beside results.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from ebclab.errors import RunError
from ebclab.evaluation.comparison import CHANCE, difference_with_chance, mean_and_interval
from ebclab.evaluation.objectives import OBJECTIVES, format_of
from ebclab.formatting import PROBES
from ebclab.interval import POINTS, Interval
from ebclab.methods_by_name import Methods
from ebclab.regular_file import read_regular
from ebclab.reports.comparable import LEAST_TRIALS, Footing, footing, importance, importance_digest
from ebclab.runs.references import FILE, REFERENCES, THE, Name, Protocol, References
from ebclab.runs.summary import RunSummary
from ebclab.storage.kinds import COMPARISON, RUN
from ebclab.storage.object_store import Store
from ebclab.storage.reading import LARGEST_LOG
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog, gpus_of
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.results import ConfirmedSettings, SeedScores, SettingsTest, SweepFindings

BY = replace(POINTS, is_signed=False)


def is_above(difference: Interval) -> bool:
    """Return whether a result is above a reference beyond noise, by their difference."""
    return difference.low is not None and difference.low > 0


def against(name: str, difference: Interval) -> str:
    """Return how a result that is not above a reference beyond noise compares with it, after "is"."""
    if difference.is_noise is None:
        return f"{POINTS.number(difference.mean)} from {THE[name]}, with no interval ({difference.open})"
    if difference.mean >= 0 or difference.is_noise:
        return f"within noise of {THE[name]}, {POINTS.difference(difference)}"
    return f"below {THE[name]} by {BY.difference(-1 * difference)}"


def verdict(difference: Interval) -> str:
    """Return how a result compares with a reference, for a cell of a table."""
    if difference.low is None or difference.high is None:
        return "no interval"
    if difference.low > 0:
        return "above, beyond noise"
    return "below, beyond noise" if difference.high < 0 else "within noise"


MOST = 4
"""Maximum number of statements of one kind in a sentence."""


def some(named: Sequence[str]) -> str:
    """Return statements as text, truncated to the first few."""
    rest = f"; {len(named) - MOST} more" if len(named) > MOST else ""
    return "; ".join(named[:MOST]) + rest


def measured_for_all(over: Mapping[str, Mapping[Name, Interval]]) -> list[Name]:
    """Return the references that every result was compared with; none without results."""
    return [name for name in REFERENCES if over and all(name in gaps for gaps in over.values())]


def all_learnt(over: Mapping[str, Mapping[Name, Interval]], kind: str, *, note: str = "") -> str:
    """Return whether results, by what each is called, are above the references, beyond noise.

    Args:
        over: How much higher each is than each reference that was measured; one at least is measured for all.
        kind: What a result is called, in the singular.
        note: What follows where none is above.
    """
    names = measured_for_all(over)
    both = " and ".join(THE[name] for name in names)
    if all(is_above(gaps[name]) for gaps in over.values() for name in names):
        what, name = min(
            ((what, name) for what in over for name in names), key=lambda each: over[each[0]][each[1]].mean
        )
        least = f"{what}, {POINTS.interval(over[what][name])} over {THE[name]}"
        return f"Every {kind} is above {both}, beyond noise; the least: {least}."
    low = {
        what: [against(name, gaps[name]) for name in names if not is_above(gaps[name])] for what, gaps in over.items()
    }
    if all(low.values()):
        which = " ".join(line for name in names for line in _not_above(over, name))
        return f"No {kind} is above {both} beyond noise. {which}{note}"
    below = [f"{what} is {' and '.join(lines)}" for what, lines in low.items() if lines]
    return f"Not every {kind} is above {both} beyond noise: {some(below)}."


def _not_above(over: Mapping[str, Mapping[Name, Interval]], name: Name) -> Iterator[str]:
    """Yield which results are below a reference, and which are within noise of it."""
    low = {what: gaps[name] for what, gaps in over.items() if not is_above(gaps[name])}
    behind = {what: gap for what, gap in low.items() if gap.mean < 0 and gap.is_noise is False}
    if behind:
        yield f"Below {THE[name]}: {some([f'{what} by {BY.difference(-1 * gap)}' for what, gap in behind.items()])}."
    if level := [what for what, gap in low.items() if gap.is_noise]:
        yield f"Within noise of {THE[name]}: {'all' if len(level) == len(over) > 1 else some(level)}."
    if unknown := [f"{what} ({gap.open})" for what, gap in low.items() if gap.is_noise is None]:
        yield f"With no interval over {THE[name]}: {some(unknown)}."


@dataclass(frozen=True)
class OverReference:
    """A result, e.g. the winner of a sweep, beside one reference on the test set."""

    probe: str  # the probe of both
    name: Name  # the reference
    value: Interval  # accuracy of the reference
    difference: Interval  # how much higher that of the result is


def _beside(folder: SweepFolder) -> References:
    """Return the references of a sweep; a comparison on a disk keeps those of its sweeps."""
    above = folder.path.parent.parent
    inside = folder.remote is None and folder.path.parent.name == COMPARISON.inside
    if inside and not folder.references.exists() and (above / COMPARISON.settings).is_file():
        return References.read(above / FILE)
    return References.read(folder.references, folder.address_of(folder.references))


def over_references(
    folder: SweepFolder, plan: SweepPlan, log: SweepLog, winner: ConfirmedSettings, test: dict[str, SeedScores]
) -> tuple[OverReference, ...]:
    """Return the winner's test scores beside the references that the sweep measured by the same protocol."""
    known = _beside(folder)
    train_limit = SettingsTest.limit_in(log, plan)
    both = [
        (probe, name, score, reference)
        for probe, score in test.items()
        for name in REFERENCES
        if (reference := known.scores(name, Protocol(plan.config, train_limit, probe), winner.seeds))
    ]
    return tuple(
        OverReference(
            probe,
            name,
            mean_and_interval(reference, 1, is_rate=True),
            difference_with_chance(winner.measured_by(score), reference, CHANCE / len(both)),
        )
        for probe, name, score, reference in both
    )


def learnt(found: Sequence[OverReference], what: str = "On the test images the winner") -> str:
    """Return whether a result, the winner of a sweep or ``what``, is above the references, beyond noise."""
    if not found:
        return (
            "Whether anything was learnt is not known: this sweep did not measure raw pixels and the untrained encoder."
        )
    both = " and ".join(THE[name] for name in dict.fromkeys(each.name for each in found))
    below: dict[str, list[str]] = {}
    for each in found:
        if not is_above(each.difference):
            below.setdefault(each.probe, []).append(against(each.name, each.difference))
    if not below:
        return f"{what} is above {both}, beyond noise."
    said = "; ".join(f"by {PROBES[probe]}, it is {' and '.join(lines)}" for probe, lines in below.items())
    return f"{what} is not above {both} beyond noise: {said}."


@dataclass(frozen=True)
class SweepRecord(SweepFindings):
    """A sweep as read from its folder, and what it found."""

    folder: SweepFolder
    is_finished: bool  # whether the sweep has written its result
    is_running: bool  # whether a process currently works on the sweep
    read_at: datetime  # modification time of the log, or of the plan if there is no log

    @property
    def name(self) -> str:
        return self.folder.path.name

    @property
    def title(self) -> str:
        return f"{self.plan.config.method_name} on {self.plan.config.data.name}"

    @property
    def objective(self) -> str:
        return self.plan.config.evaluation.objective

    @property
    def objective_words(self) -> str:
        return OBJECTIVES[self.objective]

    def shown(self, value: float) -> str:
        """Return a formatted value of the objective."""
        return format_of(self.objective).number(value)

    @cached_property
    def compared(self) -> Footing:
        """The search trials that can be compared after the same number of epochs."""
        return footing(self.plan.space, self.search)

    @cached_property
    def importance(self) -> dict[str, float]:
        """The share of the objective's variance that each setting explains; empty if it cannot be computed.

        That of the report in the folder is taken if its digest says that it is of these trials and this code.
        """
        if len(self.compared.trials) < LEAST_TRIALS:
            return {}
        for entry in self._reported():
            match entry:
                case {"importance": dict(found), "importance_digest": str(digest)}:
                    if digest == importance_digest(self.plan.space, self.compared, found):
                        return found
        return importance(self.plan.space, self.compared)

    def _reported(self) -> list[Any]:
        """Return what the report in the folder says of each of its sweeps; nothing if it cannot be read."""
        try:
            found = json.loads(read_regular(self.folder.path / "report.json", LARGEST_LOG))
        except (OSError, ValueError, RecursionError):
            return []
        return found if isinstance(found, list) else []

    @cached_property
    def references(self) -> tuple[OverReference, ...]:
        """The winner beside raw pixels and the untrained encoder on the test set, where these were measured."""
        return over_references(self.folder, self.plan, self.log, self.confirmed[0], self.test) if self.test else ()

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Machine and versions of the sweep's own process; empty if not recorded."""
        return dict(self.log.launch.get("environment", {}))

    @property
    def gpus_per_trial(self) -> float:
        """GPUs per trial, or a fraction of one."""
        return gpus_of(self.log.launch)

    @cached_property
    def machines(self) -> list[str]:
        """Descriptions of the machines that trials ran on, from their run folders; else of the sweep's own process."""
        return self.folder.machines(self.environment)

    @cached_property
    def split(self) -> tuple[int, int] | None:
        """Numbers of training and held-out images, from any finished run; None if no run has finished."""
        for path in sorted(self.folder.trials.glob(f"*/{RUN.result}")):
            try:
                summary = RunSummary.read(path, str(path))
            except (RunError, OSError):  # removed since it was listed, or damaged; any other run will do
                continue
            return summary.train_images, summary.holdout_images
        return None


def read_sweep(where: str | Path, methods: Methods | None = None) -> SweepRecord:
    """Read a sweep, finished or not, from its folder or its address in an object store."""
    folder = SweepFolder.at(where).of("reader").pull_all()
    plan = folder.read_plan(methods)
    is_held = folder.is_held
    try:
        log = folder.read_log()
        read_at = _changed(folder, folder.log if folder.log.exists() else folder.plan)
    except OSError as error:
        raise RunError(f"{folder.address}: {folder.log.name} cannot be read, got {error.strerror or error}") from error
    for trial in log.trials.values():
        if is_held and trial.state == "interrupted" and not trial.reason:
            trial.state = "running"
    return SweepRecord(plan, log, folder, folder.result.exists(), is_held, read_at)


def _changed(folder: SweepFolder, path: Path) -> datetime:
    """Return the modification time of a sweep's file; in a store, by the store's clock."""
    stored = Store(folder.remote).stored(path.name) if folder.remote else None
    return stored.changed if stored and stored.changed else datetime.fromtimestamp(path.stat().st_mtime, UTC)
