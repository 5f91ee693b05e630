"""Runs the trials of a sweep on Ray: the search, then the best settings with other seeds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from ebclab.cluster.join import cluster_session, cluster_size, nodes, nodes_to_come
from ebclab.cluster.versions import Origin, require_same_versions
from ebclab.data.holdout import Split
from ebclab.runs import environment
from ebclab.runs.initial_weights import InitialWeights, keep_weights
from ebclab.sweeps.display.live_table import SweepDisplay
from ebclab.sweeps.folder import SweepFolder, claim_sweep
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.proposals import SearchProposals
from ebclab.sweeps.ray_tune.phase import Phases
from ebclab.sweeps.ray_tune.trial_worker import SharedImages, TrialSetup
from ebclab.sweeps.resources import Limits, TrialResources, share_out
from ebclab.sweeps.space.space import Point
from energy_contrast.method import Method


@contextmanager
def trained_sweep(
    folder: SweepFolder,
    plan: SweepPlan,
    split: Split,
    methods: Mapping[str, type[Method]],
    display: SweepDisplay,
    limits: Limits,
    earlier: tuple[str | None, Sequence[tuple[Point, float]]] = (None, ()),
    weights: InitialWeights | None = None,
) -> Iterator[SweepLog]:
    """Train all trials of a sweep that has passed all checks; yield the log while the folder is claimed.

    If this process has already joined a Ray instance, that one is used and left running.

    Args:
        earlier: Address of a sweep to learn from, None if there is none, and its points and objectives.
        weights: Initial weights of all trials' encoders; None means random weights.
    """
    with cluster_session(plan.config.resources.address or os.environ.get("RAY_ADDRESS") or "local", display):
        require_same_versions()
        resources = resources_of(plan, limits)
        with claim_sweep(folder, plan) as syncer:
            if weights is not None:
                keep_weights(folder.initial_weights, weights)
                syncer.push()
            log = folder.read_log(syncer)
            write_start(log, plan, resources, *earlier)
            display.note(
                f"{plan.trials} trials of {plan.epochs_in_words()}; {resources.in_words()}, in {folder.address}"
            )
            setup = TrialSetup(
                folder=folder,
                config=plan.config,
                methods=methods,
                images=None if plan.config.resources.workers else SharedImages.of(split),
                threads=resources.threads,
                gpus=resources.gpus,
                command=tuple(sys.argv),
                weights=folder.initial_weights if weights is not None else None,
                origin=Origin.here(),
            )
            search = SearchProposals(plan, earlier[1])
            Phases(folder, plan, log, resources, display, search, limits.seconds).run(setup)
            yield log


def write_start(
    log: SweepLog,
    plan: SweepPlan,
    resources: TrialResources,
    warm_start: str | None,
    earlier: Sequence[tuple[Point, float]],
) -> None:
    """Log that the sweep starts or is resumed, with its resources and its machine.

    The results of an earlier sweep that it learns from are logged once, at the start.
    """
    learnt = {"earlier": list(map(list, earlier))} if earlier and not log.trials else {}
    log.append(
        "started" if not log.trials else "resumed",
        trials=plan.trials,
        concurrent=resources.concurrent,
        gpus_per_trial=resources.all_gpus,
        warm_start=warm_start,
        environment=environment.describe_environment(torch.device("cpu"), resources.threads, 1, sys.argv),
        **learnt,
    )


def resources_of(plan: SweepPlan, limits: Limits) -> TrialResources:
    """Return what each trial reserves on the cluster that this process has joined."""
    cpus, gpus = cluster_size()
    most = max(plan.trials, plan.seeds * (plan.top + plan.baseline))
    found = share_out(plan.config.resources, limits, cpus=cpus, gpus=gpus, num_trials=most)
    found.require_place([*nodes(), *nodes_to_come(1)])
    return found
