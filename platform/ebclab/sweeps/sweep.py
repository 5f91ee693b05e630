"""Run a whole sweep: check all that can be checked without Ray, then train the trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

from ebclab.cluster.switches import set_ray_switches
from ebclab.config import ExperimentConfig, to_mapping
from ebclab.config.addresses import name_hosts
from ebclab.config.experiment import flat, methods_of
from ebclab.config.names import require_folder_name
from ebclab.config.sections import CHOOSE_IMAGES, DataConfig
from ebclab.data.holdout import Split
from ebclab.data.own_images import Images
from ebclab.data.sources.location import short_name
from ebclab.errors import RunError, UserError
from ebclab.evaluation.objectives import MEASURED_WITH
from ebclab.hardware import as_before
from ebclab.methods_by_name import as_file_name
from ebclab.runs.initial_weights import InitialWeights, kept_weights, read_initial_weights, with_digest
from ebclab.runs.resume import with_own_images
from ebclab.runs.stop_request import resumable
from ebclab.sweeps.display import SweepDisplay, choose_sweep_display
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.preflight import SweepLaunch, WarmStart
from ebclab.sweeps.resources import Limits
from ebclab.sweeps.results import SweepResult
from ebclab.sweeps.space.space import Point, own_settings
from ebclab.training.setup import load_images, split_own
from energy_contrast.method import Method


@as_before()
def sweep(
    plan: SweepPlan,
    *,
    sweeps: str | Path = "sweeps",
    name: str | None = None,
    resume: bool = False,
    limits: Limits | None = None,
    warm_start: str | Path | None = None,
    images: Images | None = None,
    method: type[Method] | None = None,
    display: SweepDisplay | None = None,
    probes: tuple[str, ...] = ("knn", "linear"),
    references: bool = True,
    load: Callable[[DataConfig], Split] = load_images,
    checked: str = "",
) -> SweepResult:
    """Run a sweep, or continue it, or return the result of an equal sweep that has finished.

    Args:
        sweeps: Folder that holds sweep folders, or its address in an object store (s3://, gs://).
        name: Name of the sweep; None makes one of method and dataset.
        resume: Only continue: a missing sweep is then an error.
        limits: Time, GPUs and number of trials at once.
        warm_start: Earlier sweep to learn from: its folder or address.
        images: Own training images in place of the dataset that the plan names, as ``pretrain`` takes them.
        method: Own Method class in place of the one that the plan names.
        display: Where progress is shown; None chooses by the terminal.
        probes: What is measured on the test set; if empty, it is not read.
        references: Also measure raw pixels and the untrained encoder there.
        load: Loads the images in place of ``load_images``, such as ``Kept(load_images)`` for many sweeps of the same.
        checked: Digest of the images with which the plan was checked: others are refused, and no check is repeated.

    Returns:
        The content of result.json.

    Raises:
        UserError: The sweep cannot be made as asked.
        TrainingError: No trial measured anything.
        InterruptedRunError: Someone asked to stop; everything is saved.
    """
    name_hosts(sweeps, warm_start)
    if images is not None and plan.config.resources.workers:
        raise UserError(
            f"images: the workers of a trial read their own, got resources.workers={plan.config.resources.workers}; "
            "set it to 0, or write the images into a folder and name that by data.name"
        )
    given = None if images is None else split_own(plan.config.data, images)
    if given is not None:
        plan = replace(plan, config=with_own_images(plan.config, given))
    methods = methods_of(plan.config, method)
    name = default_name(plan.config) if name is None else require_folder_name(name)
    folder = SweepFolder.named(sweeps, name).pull_free()
    before = folder.earlier_plan(methods, resume=resume)
    plan, weights = with_initial_weights(plan, folder, before)
    result = folder.finished_result(before, plan)
    if result is not None:
        return result
    log = folder.read_log()
    learnt = _what_was_learnt(log, warm_start, plan, methods)
    folder.require_creatable()
    require_cluster_at(plan.config.resources.cluster)  # before images are read, which may take long
    split = given or load(plan.config.data)
    require_same_images(folder.address, split, log.images)
    if checked not in ("", split.content):
        raise UserError(
            f"{folder.address}: the images of {split.train.name} have changed since they were checked, got "
            f"{split.content[:20]}, expected {checked[:20]}; repeat the command"
        )
    shown = display or choose_sweep_display()
    launch = SweepLaunch(folder, plan, methods, split, shown, limits or Limits(), learnt, weights)
    is_checked = checked and weights is None  # whether given weights fit is only known here
    warnings = [] if is_checked else launch.require_runnable()
    if not folder.log.exists():
        for warning in warnings:
            shown.note(f"warning: {warning}")
    set_ray_switches()
    from ebclab.sweeps.conclude import conclude  # imports TensorBoard
    from ebclab.sweeps.ray_tune.phase import trained_sweep  # now: Ray reads its switches when it is imported

    with resumable(folder.address), trained_sweep(launch) as (log, each):
        return conclude(launch, log, probes, references=references, each=each)


def require_cluster_at(address: str) -> None:
    """Refuse an address where no cluster admits this process; "local" is this machine alone."""
    if address != "local":
        set_ray_switches()
        from ebclab.cluster.join import require_cluster

        require_cluster(address)


def require_same_images(where: str, split: Split, expected: str) -> None:
    """Refuse to train in the folder ``where`` on other images than earlier trials.

    ``expected`` is the digest of theirs, empty if it is not known.
    """
    if expected and split.content != expected:
        raise UserError(
            f"{where}: the images of {split.train.name} are not those that trials were trained on, "
            f"got {split.content[:20]}, expected {expected[:20]}; restore them, or choose another --name"
        )


def default_name(config: ExperimentConfig) -> str:
    """Return the name of a sweep that gets none: its method and dataset."""
    return f"{as_file_name(config.method_name)}-{short_name(config.data.name)}"


def with_initial_weights(
    plan: SweepPlan, folder: SweepFolder, before: SweepPlan | None
) -> tuple[SweepPlan, InitialWeights | None]:
    """Return ``plan`` with the digest of the initial weights, and these weights; None when they are random.

    A sweep, whose plan was ``before``, keeps a copy of them: a trial may start long after their source was deleted.
    """
    source = plan.config.init.weights
    if source is None:
        return plan, None
    config, weights = with_digest(plan.config, before.config.init if before else None)
    if weights is None:
        kept = folder.initial_weights
        weights = kept_weights(kept, config.init) if kept.exists() else read_initial_weights(source, config.init.digest)
    return replace(plan, config=config), weights


def _what_was_learnt(
    log: SweepLog, warm_start: str | Path | None, plan: SweepPlan, methods: Mapping[str, type[Method]]
) -> WarmStart:
    """Return the earlier sweep to learn from; a resumed sweep has its results in the log, since that one may change."""
    known = log.learnt_from
    before = SweepFolder.at(warm_start).address if warm_start else known.get("warm_start")
    if before is None:
        return WarmStart()
    if before == known.get("warm_start") and "earlier" in known:
        return WarmStart(before, [(dict(point), float(objective)) for point, objective in known["earlier"]])
    return WarmStart(before, earlier_results(before, plan, methods))


_MUST_AGREE = ("evaluation.objective", *(f"data.{name}" for name in CHOOSE_IMAGES))


def earlier_results(
    where: str | Path, plan: SweepPlan, methods: Mapping[str, type[Method]] | None = None
) -> list[tuple[Point, float]]:
    """Return points in the new sweep's space and their objectives, from the finished trials of an earlier sweep.

    A setting that the earlier sweep did not search has the value it ran with. Points outside the space are left out.
    """
    folder = SweepFolder.at(where).of("reader").pull()
    before = folder.read_plan(methods)
    old, new = flat(to_mapping(before.config)), flat(to_mapping(plan.config))
    measured = MEASURED_WITH.get(plan.config.evaluation.objective, [*chain(*MEASURED_WITH.values())])
    searched = {parameter.name for parameter in plan.space.parameters}
    same = [*_MUST_AGREE, *(f"evaluation.{name}" for name in measured)]
    same += [*(name for name in new if name.startswith("encoder.")), "method.name"]
    differ = [
        f"{key}: {old[key]} there, {new[key]} here" for key in same if key not in searched and old[key] != new[key]
    ]
    if before.epochs != plan.epochs:
        differ.append(f"--epochs: {before.epochs} there, {plan.epochs} here")
    if differ:
        lines = "".join(f"\n  {line}" for line in differ)
        raise UserError(
            f"--warm-start: {folder.address} measured something else; leave it out, or make these agree:{lines}"
        )
    fixed = own_settings(plan.space, before.config)
    points = []
    for trial in folder.read_log().of_kind("search"):
        point = plan.space.point_of({**fixed, **trial.settings})
        if trial.state == "finished" and point is not None and math.isfinite(trial.value):
            points.append((point, trial.value))
    if not points:
        raise RunError(
            f"--warm-start: {folder.address} has no finished trial inside this space; leave it out or widen the space"
        )
    return points
