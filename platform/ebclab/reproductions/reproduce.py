"""Reproduce a study: plan it, train and measure its runs, of which completed work is not repeated, write the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ebclab.data.photograph import Reading
from ebclab.data.sources.catalogue import DATASETS, missing_files
from ebclab.data.sources.load import dataset_named, open_source, splits_of
from ebclab.data.sources.location import location_of
from ebclab.errors import DataError, RunError, TrainingError, UnmeasuredError, UserError
from ebclab.evaluation.evaluate import PROBES
from ebclab.evaluation.progress import OnProgress, in_lines, silent
from ebclab.formatting import clock, count
from ebclab.hardware import as_before, usable_processors
from ebclab.reproductions.document import write_table
from ebclab.reproductions.measure import RunOutcome, measure_run
from ebclab.reproductions.plan import ReproductionFolder, StudyPlan, plan_study
from ebclab.reproductions.request import ReproduceRequest
from ebclab.reproductions.study import load_study
from ebclab.reproductions.table import ReproducedTable, table_of_plan
from ebclab.runs.environment import command_in_words, machine_in_words, read_environment, versions_in_words
from ebclab.runs.folder import ENVIRONMENT, RunFolder
from ebclab.runs.jobs import work_at_once
from ebclab.runs.measured_references import try_references
from ebclab.runs.references import References
from ebclab.runs.stop_request import resumable
from ebclab.terminal import say
from ebclab.training.display import Listener, choose_display
from ebclab.training.pretrain import pretrain


@dataclass(frozen=True)
class ReproductionRun:
    """Result of reproducing a study."""

    folder: ReproductionFolder
    table: ReproducedTable  # our numbers beside the published


def plan_of_request(request: ReproduceRequest) -> tuple[StudyPlan, ReproductionFolder]:
    """Return the plan of a request and its folder; nothing is written."""
    if request.study is None:
        raise UserError("reproduce: name a study, such as ebclr/table1; `ebclab reproduce --list` shows all")
    if problems := request.problems():
        raise UserError("\n".join(problems))
    plan = plan_study(
        load_study(request.study),
        request.scale,
        seeds=range(request.seeds or 0),
        data_root=request.data_root,
        assignments=request.assignments,
        images=request.places,
        rows=request.rows,
        datasets=request.datasets,
    )
    for name in plan.datasets:
        if location_of(name) is None:
            dataset_named(name)  # refuses one that is not in the catalogue
    return plan, ReproductionFolder.of_plan(plan, request.to)


@as_before()
def reproduce(
    request: ReproduceRequest, *, note: Callable[[str], None] | None = None, display: Listener | None = None
) -> ReproductionRun:
    """Run a table or figure of a paper, or resume it, and set our numbers beside the published.

    A run that cannot be trained or measured is named in ``table.failures``; the other runs continue.

    Args:
        note: Called with a line of text when a run starts, ends or fails; if None, the line goes to stderr.
        display: Progress display of each run; if None, it is chosen by the terminal (none at scale smoke).

    Returns:
        The results, which are also written to its folder.
    """
    plan, folder = plan_of_request(request)
    outcomes = run_plan(
        plan,
        folder,
        note=note or (lambda text: say(text, err=True)),
        display=display or (None if plan.scale == "smoke" else choose_display()),
        at_once=request.at_once,
    )
    references = References.read(folder.references, folder.address_of(folder.references))
    table = table_of_plan(plan, outcomes, references)
    write_table(table, folder)
    return ReproductionRun(folder, table)


def require_data(plan: StudyPlan) -> None:
    """Require that the datasets that a plan uses are there, with the test images and labels that are measured by."""
    lines = []
    reads_test = any(not cell.wanted.measure.startswith(("log/", "seconds-per-")) for cell in plan.cells if cell.runs)
    probed = {
        config.data.name: Reading.of(config.data)
        for run, config in plan.runs.items()
        if any(each.measure in PROBES and not each.dataset for each in plan.wanted_of(run))
    }
    for name in plan.datasets:
        known = DATASETS.get(name)
        if reads_test and "test" not in splits_of(name):
            lines.append(f"{plan.study.name}: numbers are measured on test images, got {name}, which has none")
            continue
        if name in probed and not known:
            labels = open_source(name, "test", probed[name]).index.labels
            if lacking := int((labels < 0).sum()):
                lines.append(
                    f"{plan.study.name}: kNN and linear probes need labels, got {lacking:,} of {len(labels):,} "
                    f"test images of {name} without; choose a labelled dataset"
                )
        if known and (missing_files(known, plan.data_root, "train") or missing_files(known, plan.data_root, "test")):
            root = f" --data-root {plan.data_root}" if plan.data_root else ""
            lines.append(
                f"{plan.study.name}: {name} is needed at scale {plan.scale}; run `ebclab data fetch {name}{root}`"
            )
    if lines:
        raise DataError("\n".join(lines))


def run_plan(
    plan: StudyPlan,
    folder: ReproductionFolder,
    *,
    note: Callable[[str], None] = lambda text: None,
    display: Listener | None = None,
    at_once: int = 1,
) -> dict[str, RunOutcome]:
    """Train and measure the runs of a plan; return their outcomes by name.

    If the training of a run fails, e.g. diverges, or the run lacks a metric, its outcome has no values; the other runs
    continue. ``at_once`` runs train at once, each in a process of its own, and show nothing on ``display``. ``note`` is
    called with a line of text when a run starts, ends or fails.
    """
    require_data(plan)
    threads = max(1, usable_processors() // at_once) if at_once > 1 else 0
    work, names, outcomes = _Work(plan, folder, threads), list(plan.runs), dict[str, RunOutcome]()
    with resumable(folder.address), folder.enter(plan) as syncer:
        results: Iterator[tuple[str, RunOutcome | TrainingError]]
        if at_once > 1:
            note(f"{count(len(names), 'run')}, {at_once} at once, each with {count(threads, 'thread')}")
            done = [name for name in names if work.is_done(name)]  # needs no process, which takes seconds
            left = [name for name in names if name not in done]
            results = chain(((name, work(name)) for name in done), work_at_once(work, left, at_once))
        else:
            results = _in_sequence(work, names, note, display)
        for name, outcome in results:
            if isinstance(outcome, TrainingError):  # of a process that was killed: the run may be fine
                raise TrainingError(f"{name}: {outcome}")
            outcomes[name] = outcome
            if outcome.problem:
                note(f"{name}: failed, {outcome.problem}")
            elif at_once > 1:
                note(f"{len(outcomes)} of {len(names)} done: {name}, {clock(outcome.seconds)} of training")
            syncer.push()
        if any(not each.problem for each in outcomes.values()):
            try_references(folder.references, plan.protocols, note)
            syncer.push()
    return {name: outcomes[name] for name in names}


@dataclass(frozen=True)
class _Work:
    """What is done for each run of a plan."""

    plan: StudyPlan
    folder: ReproductionFolder
    threads: int  # of a run whose settings name no number; 0 means all that are usable

    def is_done(self, name: str) -> bool:
        """Return whether a run has finished and all its values are saved; if damaged, training it says so."""
        try:
            result = RunFolder.named(self.folder.inside, name).of("reader").pull().read_result()
            wanted = self.plan.wanted_of(name)
            return result is not None and self.folder.read_numbers(name, result.finished).keys() >= {*wanted}
        except RunError:
            return False

    def __call__(self, name: str, display: Listener | None = None, on_progress: OnProgress = silent) -> RunOutcome:
        """Train a run, unless it has finished, and measure the values that are not saved yet."""
        config, wanted = self.plan.runs[name], self.plan.wanted_of(name)
        resources = replace(config.resources, threads=config.resources.threads or self.threads)
        try:
            run = pretrain(
                replace(config, resources=resources), runs=self.folder.inside, name=name, display=display or Listener()
            )
            known = self.folder.read_numbers(name, run.summary.finished)
            if missing := [each for each in wanted if each not in known]:
                for found in measure_run(run, missing, self.plan.data_root, on_progress):
                    known = known | found
                    self.folder.write_numbers(name, run.summary.finished, known)
        except (TrainingError, UnmeasuredError) as error:
            return RunOutcome(problem=str(error))
        environment, data = read_environment(run.path / ENVIRONMENT), RunFolder.at(run.path).read_config().data
        return RunOutcome(
            run.summary.seconds,
            {each: known[each] for each in wanted},
            "; ".join(filter(None, [machine_in_words(environment, "a run"), versions_in_words(environment)])),
            command_in_words(environment),
            str(environment.get("commit") or ""),
            f"{data.name} {data.digest[:12]}".strip(),
        )


def _in_sequence(
    work: _Work, names: Sequence[str], note: Callable[[str], None], display: Listener | None
) -> Iterator[tuple[str, RunOutcome]]:
    for place, name in enumerate(names, start=1):
        note(f"run {place} of {len(names)}: {name}")
        yield name, work(name, display, in_lines(note))
