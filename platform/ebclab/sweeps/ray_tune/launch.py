"""Runs a sweep on Ray: search, confirm the best settings with other seeds, read the test set once, write the result."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ebclab.cluster.join import cluster_session, cluster_size, nodes, nodes_to_come
from ebclab.cluster.versions import Origin, require_same_versions
from ebclab.data.holdout import Split
from ebclab.runs import environment
from ebclab.runs.initial_weights import InitialWeights, keep_weights
from ebclab.sweeps.conclude import conclude
from ebclab.sweeps.display.live_table import SweepDisplay
from ebclab.sweeps.folder import SweepFolder, claim_sweep
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.proposals import ConfirmProposals, SearchProposals
from ebclab.sweeps.ray_tune.phase import Phase, Phases
from ebclab.sweeps.ray_tune.trial_worker import SharedImages, TrialSetup
from ebclab.sweeps.resources import Limits, TrialResources, share_out
from ebclab.sweeps.results import SweepResult
from energy_contrast.method import Method


def launch_sweep(launch: Launch) -> SweepResult:
    """Train all trials, confirm the best, test the winner, and return the result.

    If this process has already joined a Ray instance, that one is used and left running.
    """
    folder, plan, display = launch.folder, launch.plan, launch.display
    with cluster_session(plan.config.resources.address or os.environ.get("RAY_ADDRESS") or "local", display):
        require_same_versions()
        resources = resources_of(plan, launch.limits)
        with claim_sweep(folder, plan) as syncer:
            if launch.weights is not None:
                keep_weights(folder.initial_weights, launch.weights)
                syncer.push()
            log = folder.read_log(syncer)
            _write_start(log, launch, resources)
            display.note(
                f"{plan.trials} trials of {plan.epochs_in_words()}; {resources.in_words()}, in {folder.address}"
            )
            setup = TrialSetup(
                folder=folder,
                config=plan.config,
                methods=launch.methods,
                images=None if plan.config.resources.workers else SharedImages.of(launch.split),
                threads=resources.threads,
                gpus=resources.gpus,
                command=tuple(sys.argv),
                weights=folder.initial_weights if launch.weights is not None else None,
                origin=Origin.here(),
            )
            Phases(_phases(launch, log, resources)).run(setup, resources, folder.own(".ray"))
            return conclude(folder, plan, log, launch.methods, display, launch.probes, references=launch.references)


def _phases(launch: Launch, log: SweepLog, resources: TrialResources) -> Iterator[Phase]:
    """Yield the search and, when it is over, the confirmation of its best settings."""
    folder, plan, display = launch.folder, launch.plan, launch.display
    search = SearchProposals(plan, launch.earlier)
    yield Phase(folder, plan, log, resources, display, search, launch.limits.seconds)
    yield Phase(folder, plan, log, resources, display, ConfirmProposals(plan, log))


def _write_start(log: SweepLog, launch: Launch, resources: TrialResources) -> None:
    """Log that the sweep starts or is resumed, with its resources and its machine.

    The results of an earlier sweep that it learns from are logged once, at the start.
    """
    learnt = {"earlier": list(map(list, launch.earlier))} if launch.earlier and not log.trials else {}
    log.append(
        "started" if not log.trials else "resumed",
        trials=launch.plan.trials,
        concurrent=resources.concurrent,
        gpus_per_trial=resources.all_gpus,
        warm_start=launch.warm_start,
        environment=environment.describe_environment(torch.device("cpu"), resources.threads, 1, sys.argv),
        **learnt,
    )


def resources_of(plan: SweepPlan, limits: Limits) -> TrialResources:
    """Return what each trial reserves on the cluster that this process has joined."""
    resources = plan.config.resources
    cpus, gpus = cluster_size()
    wants_gpu = resources.device == "cuda" or (resources.device == "auto" and gpus > 0)
    per_trial = (
        limits.gpus_per_trial if limits.gpus_per_trial is not None else float(wants_gpu * max(1, resources.workers))
    )
    found = share_out(
        cpus=cpus,
        gpus=gpus,
        num_trials=max(plan.trials, plan.seeds * (plan.top + plan.baseline)),
        threads=resources.threads,
        workers=resources.workers,
        cpus_per_worker=resources.cpus_per_worker,
        gpus_per_trial=per_trial,
        concurrent=limits.concurrent,
    )
    found.require_place([*nodes(), *nodes_to_come(1)])
    return found


@dataclass(frozen=True)
class Launch:
    """A sweep that has passed all checks and can start."""

    folder: SweepFolder
    plan: SweepPlan
    split: Split  # the images of all trials
    methods: Mapping[str, type[Method]]  # methods by name
    limits: Limits  # time, GPUs and number of trials at once
    warm_start: str | None  # address of an earlier sweep to learn from; None if there is none
    earlier: Sequence[tuple[dict[str, Any], float]]  # points and objectives of that sweep
    display: SweepDisplay  # where progress is shown
    weights: InitialWeights | None = None  # initial weights of all trials' encoders; None means random weights
    probes: tuple[str, ...] = ("knn", "linear")  # what is measured on the test set
    references: bool = True  # also measure raw pixels and the untrained encoder there
