"""Run a comparison: write its plan, run its sweeps one after the other or several at once, write the page."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ebclab.cluster.switches import set_ray_switches
from ebclab.comparisons.cost import SweepCost, check_searches, costs, equal_seconds
from ebclab.comparisons.document import write_findings
from ebclab.comparisons.findings import ComparisonFindings, read_findings
from ebclab.comparisons.measured import MeasuredSweep, not_begun
from ebclab.comparisons.plan import (
    PILOT,
    ComparisonFolder,
    ComparisonPlan,
    PlannedSweep,
    growth,
    make_comparison,
    write_comparison,
)
from ebclab.comparisons.power import pilot_plan, planned_power, power_warnings
from ebclab.comparisons.request import ComparisonRequest, Metric
from ebclab.config.experiment import methods_of
from ebclab.config.names import LONGEST_NAME, require_folder_name
from ebclab.config.sections import DataConfig
from ebclab.data.holdout import Split
from ebclab.data.sources.location import short_name
from ebclab.errors import TrainingError, UserError
from ebclab.formatting import clock
from ebclab.hardware import as_before
from ebclab.methods_by_name import as_file_name
from ebclab.runs.jobs import Each, Kept, one_by_one, work_at_once
from ebclab.runs.references import Protocol, try_references
from ebclab.sweeps.display import SweepDisplay, choose_sweep_display
from ebclab.sweeps.folder import finished_result
from ebclab.sweeps.resources import Limits
from ebclab.sweeps.sweep import sweep
from ebclab.terminal import say
from ebclab.training.setup import load_images


@dataclass(frozen=True)
class ComparisonRun:
    """Result of running a comparison."""

    folder: ComparisonFolder
    findings: ComparisonFindings  # its results
    failed: tuple[str, ...]  # the sweeps that failed, with the error messages


@as_before()
def compare(
    request: ComparisonRequest,
    *,
    comparisons: str | Path = "comparisons",
    name: str | None = None,
    limits: Limits | None = None,
    display: SweepDisplay | None = None,
    at_once: int = 1,
) -> ComparisonRun:
    """Run a comparison, resume it, or extend it.

    The plan is written before any training starts. If a sweep fails with a training error, the other sweeps are still
    run.

    Args:
        comparisons: Folder that contains comparisons, or its address in an object store (s3://, gs://).
        name: Name of the comparison; if None, it is derived from methods and dataset.
        limits: GPUs and number of concurrent trials.
        display: Progress display; if None, it is chosen by the terminal.
        at_once: Number of searches that run at once, in a process each; ``display`` then shows only when one ends.
    """
    shown = display or choose_sweep_display()
    if at_once > 1 and request.practice_seconds:
        raise UserError(
            f"--at-once: --practice gives searches equal times, in which others would take their processors, got "
            f"{at_once}; leave one of the two out"
        )
    plan, folder, grown = plan_of_request(request, comparisons=comparisons, name=name, limits=limits)
    left = [planned for planned in plan.sweeps if not _is_finished(planned, folder)]
    load, digests, failed = Kept(load_images), dict[DataConfig, str](), list[str]()
    if left:
        digests, warnings = check_searches(plan, folder, load)
        for warning in [*warnings, *power_warnings(planned_power(plan, folder))]:
            shown.note(f"warning: {warning}")
    if at_once > 1:
        load = Kept(load_images)  # every process of a search loads its own: none are kept here
    with folder.claim() as syncer:
        if not any(version.digest == plan.digest for version in folder.read_versions()[-1:]):
            folder.add_version(plan, grown)
        write_comparison(folder.plan, plan)
        syncer.push()
        shown.note(f"plan {plan.digest}: {len(left)} of {len(plan.sweeps)} searches to do, in {folder.address}")
        with _one_ray(plan, shown, limits) if left else nullcontext(one_by_one) as each:
            try_references(folder.references, _protocols(plan, map(not_begun, left)), shown.note, each)
            syncer.push()
            searches = {planned.name: planned for planned in left}
            search = _Search(folder, searches, limits or Limits(), request.metric, load, digests)
            for name, problem in _searched(search, shown, at_once):
                if problem:
                    failed.append(f"{name}: {problem}")
                    shown.note(failed[-1])
            found = read_findings(folder, plan)
            found.require_same_images(folder.address)
            found.require_measured(folder.address)
            try_references(folder.references, _protocols(plan, found.sweeps), shown.note, each)
        found = replace(found, references=folder.read_references())
        write_findings(folder, found)
        syncer.push()
    return ComparisonRun(folder, found, tuple(failed))


@dataclass(frozen=True)
class _Search:
    """Runs searches of a comparison, all of which were checked; a copy in another process loads images itself."""

    folder: ComparisonFolder
    searches: Mapping[str, PlannedSweep]  # by name
    limits: Limits
    metric: Metric  # the probe that runs of the confirmation are tested by
    load: Kept[Split]  # loads images
    digests: Mapping[DataConfig, str]  # of the images with which searches were checked

    def run(self, name: str, display: SweepDisplay) -> str:
        """Run a search; return why it failed, empty if it did not."""
        planned = self.searches[name]
        try:
            sweep(
                planned.plan,
                sweeps=self.folder.inside,
                name=name,
                limits=self.limits,
                display=display,
                probes=(self.metric,),
                references=False,
                load=self.load,
                checked=self.digests[planned.plan.config.data],
            )
        except TrainingError as error:
            return str(error)
        return ""

    def run_in_child(self, address: str, name: str) -> str:
        """Run a search in a process that was started for it, on the Ray at an address."""
        set_ray_switches()
        from ebclab.cluster.join import joined_as_child

        is_private = self.searches[name].plan.config.resources.cluster == "local"
        with joined_as_child(address, private=is_private):
            return self.run(name, _Notes(name))


def _searched(search: _Search, display: SweepDisplay, at_once: int) -> Iterator[tuple[str, str]]:
    """Run searches on the Ray that this process has joined; yield each with why it failed, empty if it did not."""
    names = list(search.searches)
    if at_once <= 1 or not names:
        for number, name in enumerate(names, start=1):
            display.note(f"search {number} of {len(names)}: {name}")
            yield name, search.run(name, display)
        return
    from ebclab.cluster.join import joined_address

    display.note(f"{len(names)} searches, {at_once} at once")
    began = time.monotonic()
    beside = replace(search, limits=replace(search.limits, searches=min(at_once, len(names))))
    ended = work_at_once(partial(beside.run_in_child, joined_address()), names, at_once)
    for done, (name, outcome) in enumerate(ended, start=1):
        left = (time.monotonic() - began) / done * (len(names) - done)
        display.note(f"{done} of {len(names)} searches done: {name}" + f", about {clock(left)} left" * (left > 0))
        yield name, str(outcome)


class _Notes(SweepDisplay):
    """Writes the messages of one of several searches, with its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def note(self, text: str) -> None:
        say(f"{self._name}: {text}", err=True)


def run_pilot(plan: ComparisonPlan, folder: ComparisonFolder, num_seeds: int, limits: Limits | None = None) -> None:
    """Run the first method's default settings with other seeds than the comparison's, or resume that.

    The runs say how far seeds scatter, on held-out images; test images are not read.
    """
    shown, pilot = choose_sweep_display(), pilot_plan(plan, num_seeds)
    check_searches(plan)
    with folder.claim(), _one_ray(plan, shown, limits):
        shown.note(f"pilot: {pilot.config.method_name} with default settings and {num_seeds} seeds")
        sweep(pilot, sweeps=folder.inside, name=PILOT, limits=limits, display=shown, probes=(), references=False)


def _protocols(plan: ComparisonPlan, sweeps: Iterable[MeasuredSweep]) -> Iterator[tuple[Protocol, Sequence[int]]]:
    return ((each.protocol(plan.request.metric), each.planned.plan.confirming_seeds) for each in sweeps)


def _is_finished(planned: PlannedSweep, folder: ComparisonFolder) -> bool:
    """Return whether a sweep is finished; False if it starts from given weights, for which ``sweep`` itself decides."""
    if planned.plan.config.init.weights is not None:
        return False
    there = folder.sweep(planned.name).of("reader").pull()
    return finished_result(there, there.earlier_plan(methods_of(planned.plan.config)), planned.plan) is not None


def findings_of(folder: ComparisonFolder) -> ComparisonFindings:
    """Return the results of the comparison in ``folder`` so far; refuse one without any."""
    plan = folder.pull().read_plan()
    found = read_findings(folder, plan)
    found.require_measured(folder.address)
    return found


def page_of(folder: ComparisonFolder) -> ComparisonRun:
    """Write the page of the results of the comparison in ``folder`` so far, without training."""
    folder.require_free()
    found = findings_of(folder)
    write_findings(folder, found)
    folder.send(folder.result.name, folder.table.name, folder.page.name)
    return ComparisonRun(folder, found, ())


def plan_of_request(
    request: ComparisonRequest,
    *,
    comparisons: str | Path = "comparisons",
    name: str | None = None,
    limits: Limits | None = None,
) -> tuple[ComparisonPlan, ComparisonFolder, list[str]]:
    """Return the plan of a request, its folder, and what it adds to the plan there; nothing is written.

    Within ``limits``, methods are measured if all are to train for equal times.
    """
    if name is not None:
        require_folder_name(name)
    plan = make_comparison(request)
    chosen = name or default_name(plan)
    folder = ComparisonFolder.named(comparisons, chosen).pull_free()
    before = folder.read_plan() if folder.has_plan() else None
    if request.budget == "seconds":
        measured = (
            costs if plan.sweeps[0].plan.config.resources.cluster == "local" else partial(_costs_on_cluster, limits)
        )
        plan = make_comparison(request, equal_seconds(plan, before, measured))
    grown = growth(before, plan, folder.address) if before else []
    return replace(plan, written_digest="" if grown or before is None else before.digest), folder, grown


def _costs_on_cluster(limits: Limits | None, plan: ComparisonPlan) -> list[SweepCost]:
    """Return what sweeps cost on the machines that will train them, which may have GPUs where this one has none."""
    with _one_ray(plan, choose_sweep_display(), limits) as each:
        return costs(plan, each)


def default_name(plan: ComparisonPlan) -> str:
    """Return the default name of a comparison: methods and the first dataset."""
    methods = map(as_file_name, plan.request.methods)
    return "-".join([*methods, short_name(plan.tasks[0].dataset)])[:LONGEST_NAME]


@contextmanager
def _one_ray(plan: ComparisonPlan, display: SweepDisplay, limits: Limits | None) -> Iterator[Each]:
    """Join a Ray cluster or start Ray, once for all sweeps; yield what does other jobs there."""
    set_ray_switches()
    from ebclab.cluster.join import cluster_session  # imported late: Ray reads its switches on import
    from ebclab.sweeps.ray_tune.phase import jobs_on_cluster, resources_of

    first = plan.sweeps[0].plan
    with cluster_session(first.config.resources.cluster, display):
        yield jobs_on_cluster(first, resources_of(first, limits or Limits()))
