"""Run a comparison: check its searches, write its plan, run them one by one or several at once, write the page.

Also what it costs, measured with a few training steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ebclab.cluster.switches import set_ray_switches
from ebclab.comparisons.document import write_findings
from ebclab.comparisons.findings import ComparisonFindings, read_findings
from ebclab.comparisons.plan import (
    PILOT,
    ComparisonFolder,
    ComparisonPlan,
    Key,
    PlannedSweep,
    equal_seconds,
    growth,
    make_comparison,
)
from ebclab.comparisons.power import num_test_images, pilot_plan, planned_power, power_warnings
from ebclab.comparisons.request import ComparisonRequest
from ebclab.config.experiment import methods_of
from ebclab.config.names import require_folder_name
from ebclab.config.sections import DataConfig
from ebclab.data.holdout import Split
from ebclab.data.sources.load import splits_of
from ebclab.errors import ConfigError, DataError, EbclabError, TrainingError, UserError
from ebclab.formatting import clock
from ebclab.hardware import as_before
from ebclab.runs.jobs import Each, Kept, one_by_one, work_at_once
from ebclab.runs.measured_references import try_references
from ebclab.runs.references import PIXELS, UNTRAINED
from ebclab.runs.stop_request import resumable
from ebclab.sweeps.display import SweepDisplay, choose_sweep_display
from ebclab.sweeps.preflight import epoch_seconds, reading_seconds, require_runnable
from ebclab.sweeps.resources import Limits
from ebclab.sweeps.results import SweepResult
from ebclab.sweeps.sweep import require_cluster_at, require_same_images, sweep
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
    found = read_findings(folder, plan)
    left = [planned for planned in plan.sweeps if not _is_finished(planned, folder)]
    load, digests, failed = Kept(load_images), dict[DataConfig, str](), list[str]()
    if left:
        digests = _checked(found, folder, load, shown)
    if at_once > 1:
        load = Kept(load_images)  # every process of a search loads its own: none are kept here
    with resumable(folder.address), folder.claim() as syncer:
        folder.write_plan(plan, grown)
        syncer.push()
        shown.note(f"plan {plan.digest}: {len(left)} of {len(plan.sweeps)} searches to do, in {folder.address}")
        with _one_ray(plan, shown, limits) if left else nullcontext(one_by_one) as each:
            protocols = [(planned.protocol(request.metric), planned.plan.confirming_seeds) for planned in left]
            try_references(folder.references, protocols, shown.note, each)
            syncer.push()
            beside = replace(limits or Limits(), searches=min(at_once, len(left)) or 1)
            searches = {
                planned.name: partial(
                    sweep,
                    planned.plan,
                    sweeps=folder.inside,
                    name=planned.name,
                    limits=beside,
                    probes=(request.metric,),
                    references=False,
                    load=load,
                    checked=digests[planned.config.data],
                )
                for planned in left
            }
            for line in _failures(searches, shown, at_once):
                failed.append(line)
                shown.note(line)
            if left:
                found = read_findings(folder, plan)
            found.require_same_images(folder.address)
            found.require_measured(folder.address)
            try_references(folder.references, found.protocols, shown.note, each)
        found = replace(found, references=folder.read_references())
        write_findings(folder, found)
        syncer.push()
    return ComparisonRun(folder, found, tuple(failed))


def _checked(
    found: ComparisonFindings, folder: ComparisonFolder, load: Load, display: SweepDisplay
) -> dict[DataConfig, str]:
    """Refuse what could not run, show warnings, and return the digests of the images, by their data."""
    require_cluster_at(found.plan.sweeps[0].config.resources.cluster)  # before images are read, which may take long
    digests, warnings = check_searches(found, folder.address, load)
    for warning in [*warnings, *power_warnings(planned_power(found, folder))]:
        display.note(f"warning: {warning}")
    return digests


Searches = Mapping[str, partial[SweepResult]]
"""What runs each of several searches, by its name; its copy in another process loads images itself."""


def _failures(searches: Searches, display: SweepDisplay, at_once: int) -> Iterator[str]:
    """Run searches on the Ray that this process has joined; yield a line for each that failed."""
    if at_once <= 1 or not searches:
        for number, name in enumerate(searches, start=1):
            display.note(f"search {number} of {len(searches)}: {name}")
            if problem := _problem_of(searches[name], display):
                yield f"{name}: {problem}"
        return
    from ebclab.cluster.join import joined_address

    display.note(f"{len(searches)} searches, {at_once} at once")
    began = time.monotonic()
    ended = work_at_once(partial(_searched_in_child, joined_address(), searches), list(searches), at_once)
    for done, (name, outcome) in enumerate(ended, start=1):
        left = (time.monotonic() - began) / done * (len(searches) - done)
        display.note(f"{done} of {len(searches)} searches done: {name}" + f", about {clock(left)} left" * (left > 0))
        if outcome:
            yield f"{name}: {outcome}"


def _problem_of(search: partial[SweepResult], display: SweepDisplay) -> str:
    """Run a search; return why it failed, empty if it did not."""
    try:
        search(display=display)
    except TrainingError as error:
        return str(error)
    return ""


def _searched_in_child(address: str, searches: Searches, name: str) -> str:
    """Run a search in a process that was started for it, on the Ray at an address."""
    set_ray_switches()
    from ebclab.cluster.join import joined_as_child

    with joined_as_child(address, private=searches[name].args[0].config.resources.cluster == "local"):
        return _problem_of(searches[name], _Notes(name))


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
    check_searches(ComparisonFindings(plan))
    with folder.claim(), _one_ray(plan, shown, limits):
        shown.note(f"pilot: {pilot.config.method_name} with default settings and {num_seeds} seeds")
        sweep(pilot, sweeps=folder.inside, name=PILOT, limits=limits, display=shown, probes=(), references=False)


def _is_finished(planned: PlannedSweep, folder: ComparisonFolder) -> bool:
    """Return whether a sweep is finished; False if it starts from given weights, for which ``sweep`` itself decides."""
    if planned.config.init.weights is not None:
        return False
    there = folder.sweep(planned.name).of("reader").pull()
    return there.finished_result(there.earlier_plan(methods_of(planned.config)), planned.plan) is not None


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
    folder.send(*write_findings(folder, found))
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
    chosen = name or plan.default_name
    folder = ComparisonFolder.named(comparisons, chosen).pull_free()
    before = folder.read_plan() if folder.has_plan() else None
    if request.budget == "seconds":
        plan = make_comparison(request, equal_seconds(plan, before, partial(_seconds_where_trained, limits)))
    grown = growth(before, plan, folder.address) if before else []
    return replace(plan, written_digest="" if grown or before is None else before.digest), folder, grown


def _seconds_where_trained(limits: Limits | None, plan: ComparisonPlan) -> dict[Key, float]:
    """Return the seconds of epochs here or, if a cluster trains, there: it may have GPUs where this machine has not."""
    if plan.sweeps[0].config.resources.cluster == "local":
        return seconds_of_epochs(plan)
    with _one_ray(plan, choose_sweep_display(), limits) as each:
        return seconds_of_epochs(plan, each)


@contextmanager
def _one_ray(plan: ComparisonPlan, display: SweepDisplay, limits: Limits | None) -> Iterator[Each]:
    """Join a Ray cluster or start Ray, once for all sweeps; yield what does other jobs there."""
    set_ray_switches()
    from ebclab.cluster.join import cluster_session  # imported late: Ray reads its switches on import
    from ebclab.sweeps.ray_tune.phase import jobs_on_cluster, resources_of

    first = plan.sweeps[0].plan
    with cluster_session(first.config.resources.cluster, display):
        yield jobs_on_cluster(first, resources_of(first, limits or Limits()))


Load = Callable[[DataConfig], Split]
"""Loads the images of a run, the same ones once."""


def check_searches(
    found: ComparisonFindings, where: str = "", load: Load | None = None
) -> tuple[dict[DataConfig, str], list[str]]:
    """Refuse a comparison with a sweep that could not run, beside those that have begun in the folder ``where``.

    Return the digests of the images with which sweeps were checked, by their data, and warnings.
    """
    plan, load = found.plan, load or Kept(load_images)
    digests, problems, warnings = dict[DataConfig, str](), dict[str, None](), dict[str, None]()
    for dataset in dict.fromkeys(task.dataset for task in plan.tasks):
        if "test" not in splits_of(dataset):
            problems[f"data.name: methods are compared on test images, got {dataset}, which has none"] = None
    for planned in plan.different.values():
        try:
            data = planned.config.data
            split = load(data)
            if data not in digests:
                for begun in found.images_of(data):
                    require_same_images(where, split, begun)
            digests[data] = split.content
            lines = require_runnable(planned.plan, split, methods_of(planned.config))
            warnings |= dict.fromkeys(f"{planned.where}: {line}" for line in lines)
        except DataError:
            raise
        except ConfigError as error:
            problems |= dict.fromkeys(f"{planned.where}: {line}" for line in error.problems)
        except UserError as error:
            problems[str(error)] = None
    if plan.request.practice_seconds and not problems:
        seconds = seconds_of_epochs(plan, load=load)
        for planned in (planned for planned in plan.sweeps if planned.arm == "practice"):
            given, run = planned.plan.search_seconds, planned.run_seconds(seconds[planned.key])
            line = f"less than one trial of {planned.where}, got {given:g} s; one takes about {run:.0f} s"
            if run > given:
                problems[f"--practice: {line}"] = None
    if problems:
        raise ConfigError(list(problems))
    return digests, list(warnings)


def seconds_of_epochs(plan: ComparisonPlan, each: Each = one_by_one, load: Load | None = None) -> dict[Key, float]:
    """Return how long an epoch of each method takes at each batch size, from measuring a few steps."""
    seconds, load = dict[Key, float](), load or Kept(load_images)
    for planned, outcome in each(partial(_epoch_seconds, load), [*plan.different.values()]):
        if isinstance(outcome, EbclabError):
            raise outcome
        seconds[planned.key] = outcome
    return seconds


def _epoch_seconds(load: Load, planned: PlannedSweep) -> float:
    config = planned.config
    threads = max(1, config.resources.threads)
    return epoch_seconds(config, load(config.data), methods_of(config), threads=threads)


def reading_cost(plan: ComparisonPlan, load: Load | None = None) -> tuple[int, float]:
    """Return how often the test images are read, references included, and how long all of it takes."""
    load, probe = load or Kept(load_images), plan.request.metric
    one, beside = dict[str, float](), dict[tuple[str, int], float]()
    number, seconds = 0, 0.0
    for planned in plan.sweeps:
        config, sweep = planned.config, planned.plan
        protocol = planned.protocol(probe)
        key = protocol.key(UNTRAINED)
        if key not in one:
            one[key] = reading_seconds(config, probe, load(config.data), num_test_images(config))
        beside |= {(key, seed): one[key] for seed in sweep.confirming_seeds} | {(protocol.key(PIXELS), 0): one[key]}
        number, seconds = number + sweep.confirming_runs, seconds + sweep.confirming_runs * one[key]
    return number + len(beside), seconds + sum(beside.values())
