"""Trains and measures the runs of a study; completed work is not repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ebclab.data.sources.load import DATASETS, missing_files
from ebclab.errors import DataError, RunError, TrainingError, UnmeasuredError
from ebclab.formatting import clock, count
from ebclab.hardware import usable_processors
from ebclab.reproductions.at_once import work_at_once
from ebclab.reproductions.folder import ReproductionFolder
from ebclab.reproductions.measure import Found, Wanted, measure_run
from ebclab.reproductions.plan import StudyPlan
from ebclab.training.listener import Listener
from ebclab.training.pretrain import pretrain


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of one run."""

    seconds: float = 0.0  # training time over all launches
    numbers: dict[Wanted, Found] = field(default_factory=dict)  # its measured values
    problem: str = ""  # why it has no values; empty if it has


def require_data(plan: StudyPlan, data_root: str | None) -> None:
    """Require that all datasets of the catalogue that a plan uses are present."""
    lines = []
    for name in plan.datasets:
        known = DATASETS.get(name)
        if known and (missing_files(known, data_root, "train") or missing_files(known, data_root, "test")):
            root = f" --data-root {data_root}" if data_root else ""
            lines.append(
                f"{plan.study.name}: {name} is needed at scale {plan.scale}; run `ebclab data fetch {name}{root}`"
            )
    if lines:
        raise DataError("\n".join(lines))


def run_plan(
    plan: StudyPlan,
    folder: ReproductionFolder,
    *,
    data_root: str | None = None,
    note: Callable[[str], None] = lambda text: None,
    display: Listener | None = None,
    at_once: int = 1,
) -> dict[str, RunOutcome]:
    """Train and measure the runs of a plan; return their outcomes by name.

    If the training of a run fails, e.g. diverges, or the run lacks a metric, its outcome has no values; the other runs
    continue. ``at_once`` runs train at once, each in a process of its own, and show nothing on ``display``. ``note`` is
    called with a line of text when a run starts, ends or fails.
    """
    require_data(plan, data_root)
    work = _Work(plan, folder, data_root, max(1, usable_processors() // at_once) if at_once > 1 else 0)
    outcomes: dict[str, RunOutcome] = {}
    with folder.enter(plan) as syncer:
        if at_once > 1:
            note(f"{count(len(plan.runs), 'run')}, {at_once} at once, each with {count(work.threads, 'thread')}")
            results = work_at_once(work, list(plan.runs), at_once)
        else:
            results = _in_sequence(work, note, display or Listener())
        for name, outcome in results:
            outcomes[name] = outcome
            if outcome.problem:
                note(f"{name}: failed, {outcome.problem}")
            elif at_once > 1:
                note(f"{len(outcomes)} of {len(plan.runs)} done: {name}, {clock(outcome.seconds)} of training")
            syncer.push()
    return {name: outcomes[name] for name in plan.runs}


@dataclass(frozen=True)
class _Work:
    """Trains one run of a plan, unless it has finished, and measures the values that are not saved yet."""

    plan: StudyPlan
    folder: ReproductionFolder
    data_root: str | None
    threads: int  # of a run whose settings name no number; 0 means all that are usable

    def __call__(self, name: str, display: Listener | None = None) -> RunOutcome:
        try:
            return self._outcome(name, display or Listener())
        except (TrainingError, UnmeasuredError) as error:
            return RunOutcome(problem=str(error))

    def _outcome(self, name: str, display: Listener) -> RunOutcome:
        config, folder = self.plan.runs[name].config, self.folder
        resources = replace(config.resources, threads=config.resources.threads or self.threads)
        run = pretrain(replace(config, resources=resources), runs=folder.inside, name=name, display=display)
        wanted = self.plan.wanted_of(name)
        known = folder.read_numbers(name, run.summary.finished)
        missing = [each for each in wanted if each not in known]
        if missing:
            known = known | measure_run(run, missing, self.data_root)
            try:
                folder.write_numbers(name, run.summary.finished, known)
            except OSError as error:
                raise RunError(
                    f"{folder.path}: cannot be written, got {error.strerror or error}; free some space"
                ) from error
        return RunOutcome(run.summary.seconds, {each: known[each] for each in wanted})


def _in_sequence(work: _Work, note: Callable[[str], None], display: Listener) -> Iterator[tuple[str, RunOutcome]]:
    for place, name in enumerate(work.plan.runs, start=1):
        note(f"run {place} of {len(work.plan.runs)}: {name}")
        yield name, work(name, display)
