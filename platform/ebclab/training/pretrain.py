"""Pretrains an encoder: one run, from settings to a finished run folder, in this process or on Ray workers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ebclab.cluster.switches import set_ray_switches
from ebclab.config import ExperimentConfig
from ebclab.config.addresses import name_hosts
from ebclab.config.experiment import methods_of
from ebclab.config.names import require_folder_name
from ebclab.data.own_images import Images
from ebclab.data.sources.location import short_name
from ebclab.errors import UserError
from ebclab.formatting import how_to_install
from ebclab.hardware import as_before, resolve_device, set_threads
from ebclab.methods_by_name import as_file_name
from ebclab.runs.folder import NEEDED, RunFolder
from ebclab.runs.initial_weights import read_initial_weights, with_digest
from ebclab.runs.metrics_log import LogEvents
from ebclab.runs.resume import EarlierLaunches, with_own_images
from ebclab.runs.stop_request import StopFlag
from ebclab.runs.summary import RunSummary
from ebclab.storage.lease import NAME as LEASE
from ebclab.storage.object_store import Store
from ebclab.training.callbacks import Callback, scheduled
from ebclab.training.display import Listener, choose_display
from ebclab.training.loggers import require_installed
from ebclab.training.rank import lead_rank
from ebclab.training.ray_train.streamed import delivery_of
from ebclab.training.setup import RunSpec, prepare, split_own
from energy_contrast.method import Method


@dataclass(frozen=True)
class RunResult:
    """A finished run."""

    path: Path  # its folder, or the copy of the folder on this machine
    summary: RunSummary  # result of the run: scores, speed, its newest checkpoint
    was_finished: bool  # the run had finished before this call
    address: str  # its folder, or its address in an object store

    @property
    def result(self) -> dict[str, Any]:
        """The summary as plain values: the content of result.json."""
        return self.summary.to_mapping()


def default_name(config: ExperimentConfig) -> str:
    """Return the default name of a run: method, dataset and seed."""
    return f"{as_file_name(config.method_name)}-{short_name(config.data.name)}-seed{config.seed}"


@as_before()
def pretrain(
    config: ExperimentConfig,
    *,
    runs: str | Path = "runs",
    name: str | None = None,
    resume: bool = False,
    extend: int | None = None,
    images: Images | None = None,
    method: type[Method] | None = None,
    display: Listener | None = None,
    callbacks: Sequence[Callback] = (),
    references: bool = False,
) -> RunResult:
    """Pretrain an encoder, continue an unfinished run, or return the result of a finished one.

    Args:
        config: Resolved settings. ``resources.workers`` is 0 for this process, or the number of workers on Ray.
        runs: Folder that holds run folders, or its address in an object store (s3://, gs://).
        name: Name of the run; None makes one of method, dataset and seed.
        resume: Only continue: a missing run is an error.
        extend: Continue the run of these settings to this total number of epochs; earlier totals stay in its settings.
        images: Own training images in place of the dataset named in ``config``, see ``own_images``. The run is
            recorded as one of ``own:NAME`` with their digest.
        method: Own Method class in place of the one that ``config.method_name`` names.
        display: Shows progress; None means a bar in a terminal and lines elsewhere.
        callbacks: Own code that runs every so many steps or epochs, see ``Callback``; with workers, a copy of it runs
            on the first one. For a run that had finished, none are run.
        references: In the end, measure the held-out kNN of raw pixels and of the untrained encoder too.

    Raises:
        UserError: The run cannot be made as asked.
        CallbackError: A callback failed; once it is corrected, the run continues from its last checkpoint.
        TrainingError: Numbers stopped being finite, or workers died more often than ``resources.max_failures``.
        InterruptedRunError: Someone asked to stop; everything is saved.
    """
    name_hosts(runs)
    require_installed(config.training.loggers)
    own_code = scheduled(callbacks)
    methods = methods_of(config, method)
    split = None if images is None else split_own(config.data, images)
    own = config if split is None else with_own_images(config, split)
    run = RunFolder.named(runs, default_name(own) if name is None else require_folder_name(name))
    earlier = EarlierLaunches(run.pull_free(NEEDED), methods, resume=resume, extend=extend)
    if split is None or not earlier.has_unnamed(split, config):
        config = own
    config, weights = with_digest(earlier.completed(config), earlier.config.init if earlier.config else None)
    state = earlier.state_of(config)
    if state == "finished" and earlier.result is not None:
        return RunResult(run.path, earlier.result, was_finished=True, address=run.address)
    if state == "unfinished":
        weights = None
    elif config.init.weights and weights is None:  # an earlier launch was killed before its first checkpoint
        weights = read_initial_weights(config.init.weights, config.init.digest)
    run.require_creatable()
    method_class = methods[config.method_name]
    spec = RunSpec(
        run, config, method_class, split, tuple(sys.argv), weights, callbacks=own_code, references=references
    )
    train = _train_on_workers if config.resources.workers else _train_here
    summary = train(spec, earlier, display or choose_display())
    return RunResult(run.path, summary, was_finished=False, address=run.address)


def _train_here(spec: RunSpec, earlier: EarlierLaunches, listener: Listener) -> RunSummary:
    resources = spec.config.resources
    device = resolve_device(resources.device, deterministic=resources.deterministic)
    set_threads(resources.threads)
    listener.note(delivery_of(spec.config, spec.images, device).reason)
    prepared = prepare(spec.config, device, spec.images, spec.method_class, weights=spec.weights)
    with earlier.claim(spec.config) as syncer, LogEvents(spec.run.metrics):
        return lead_rank(spec, prepared, listener, StopFlag(), syncer)


def _train_on_workers(spec: RunSpec, earlier: EarlierLaunches, listener: Listener) -> RunSummary:
    """Train on workers that Ray starts; a run that is refused before it began leaves no folder behind."""
    if find_spec("ray") is None:
        raise UserError(
            f"resources.workers: Ray is not installed here, got {spec.config.resources.workers}; "
            f"run {how_to_install('ray')}, or use 0 to train in this process"
        )
    set_ray_switches()
    from ebclab.training.ray_train.launch import launch

    # whether there is anything that is not this launch's to remove: hidden and unread files count too
    remote = spec.run.remote
    existed = spec.run.path.exists() if remote is None else bool(Store(remote).names().keys() - {LEASE})
    with earlier.claim(spec.config) as syncer:
        spec.run.stop.clear()  # a request to an earlier launch, which was killed
        try:
            return launch(replace(spec, token=syncer.token), listener)
        except UserError:
            if not existed and not spec.run.has_begun():
                spec.run.remove(syncer.token)
            raise
