"""Trains and measures the runs of a study in sequence; completed work is not repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ebclab.data.sources.load import DATASETS, missing_files
from ebclab.errors import DataError, RunError, TrainingError, UnmeasuredError
from ebclab.reproduce.folder import ReproductionFolder
from ebclab.reproduce.measure import Found, Wanted, measure_run
from ebclab.reproduce.plan import StudyPlan
from ebclab.training.listener import Listener
from ebclab.training.pretrain import pretrain


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of one run."""

    seconds: float = 0.0  # training time over all launches
    numbers: dict[Wanted, Found] = field(default_factory=dict)  # its measured values
    problem: str = ""  # why it has no values; empty if it has


def require_data(plan: StudyPlan, data_root: str | None) -> None:
    """Require that all datasets of the catalogue that a plan uses are present.

    Args:
        data_root: Folder that contains datasets; None means the default.
    """
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
) -> dict[str, RunOutcome]:
    """Train and measure the runs of a plan; return their outcomes by name.

    If the training of a run fails, e.g. diverges, or the run lacks a metric, its outcome has no values; the other runs
    continue.

    Args:
        folder: Folder of runs and measured values.
        data_root: Folder that contains datasets; None means the default.
        note: Called with a line of text when a run starts or fails.
        display: Shows the progress of a run; None shows nothing.
    """
    require_data(plan, data_root)
    outcomes = {}
    with folder.enter(plan) as syncer:
        for place, name in enumerate(plan.runs, start=1):
            note(f"run {place} of {len(plan.runs)}: {name}")
            try:
                outcomes[name] = _one(plan, folder, name, data_root, display or Listener())
            except (TrainingError, UnmeasuredError) as error:
                outcomes[name] = RunOutcome(problem=str(error))
                note(f"{name}: failed, {error}")
            syncer.push()
    return outcomes


def _one(
    plan: StudyPlan,
    folder: ReproductionFolder,
    name: str,
    data_root: str | None,
    display: Listener,
) -> RunOutcome:
    """Train one run, unless it has finished, and measure the values that are not saved yet."""
    run = pretrain(plan.runs[name].config, runs=folder.inside, name=name, display=display)
    wanted = plan.wanted_of(name)
    known = folder.read_numbers(name, run.summary.finished)
    missing = [each for each in wanted if each not in known]
    if missing:
        known = known | measure_run(run, missing, data_root)
        try:
            folder.write_numbers(name, run.summary.finished, known)
        except OSError as error:
            raise RunError(f"{folder.path}: cannot be written, got {error.strerror or error}; make room") from error
    return RunOutcome(run.summary.seconds, {each: known[each] for each in wanted})
