"""How many trials run at once, and how many CPUs and GPUs each gets: a pure computation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ebclab.cluster.placement import Nodes, places
from ebclab.config.sections import ResourcesConfig
from ebclab.errors import UserError
from ebclab.formatting import count


@dataclass(frozen=True)
class Limits:
    """Limits of a sweep; they may change on resume."""

    gpus_per_trial: float | None = None  # GPUs of a trial, fractions allowed; None means one if the cluster has any
    concurrent: int | None = None  # number of trials at once; None means as many as fit
    seconds: float | None = None  # time for the search; None means no limit
    searches: int = 1  # number of searches of a comparison at once, each with these limits

    def __post_init__(self) -> None:
        gpus = self.gpus_per_trial
        if gpus is not None and not (0 <= gpus <= 1 or (gpus < math.inf and gpus == math.floor(gpus) > 1)):
            raise UserError(f"--gpus-per-trial: a share of one GPU or a whole number, got {gpus:g}")


@dataclass(frozen=True)
class TrialResources:
    """What the trials of a sweep reserve on a cluster."""

    concurrent: int  # number of trials at once
    cpus: float  # CPUs that Ray reserves for the process of a trial; 0 if the trial's workers reserve them
    gpus: float  # GPUs, or a share of one, that Ray reserves for it; 0 if the trial's workers reserve them
    threads: int  # CPU threads of a trial
    worker_gpus: float = 0.0  # GPUs that all workers of a trial reserve together; 0 if it has no workers

    @property
    def all_gpus(self) -> float:
        """GPUs of a trial, or a share of one, reserved by its process or its workers."""
        return self.gpus + self.worker_gpus

    def in_words(self) -> str:
        """Return a phrase for users: how many trials run at once, and what each gets."""
        each = f"{self.threads} CPU thread{'s' if self.threads > 1 else ''}"
        return f"{self.concurrent} at once, {each}" + (f" and {self.all_gpus:g} GPU" if self.all_gpus else "") + " each"

    def on(self, nodes: Nodes) -> TrialResources:
        """Return them with at most as many trials at once as these nodes hold; refuse nodes of which none holds one."""
        if not (self.cpus or self.gpus):  # the trials' workers are placed one by one
            return self
        held = int(places(nodes, self.cpus, self.gpus))
        if not held:
            raise UserError(
                f"resources: a trial must fit one node, got {self.cpus:g} CPUs and {self.gpus:g} GPUs for each, and no "
                "node of the cluster has them; use a smaller resources.threads or --gpus-per-trial"
            )
        return replace(self, concurrent=min(self.concurrent, held))


def share_out(asked: ResourcesConfig, limits: Limits, *, cpus: float, gpus: float, num_trials: int) -> TrialResources:
    """Divide a cluster among the trials of a sweep, of which at most ``num_trials`` could ever run at once."""
    threads, workers, concurrent = max(1, asked.threads), asked.workers, limits.concurrent
    if problem := asked.ray_problem():
        raise UserError(f"resources.device: {problem}")
    wants_gpu = asked.wants_gpu(gpus)
    usual = float(wants_gpu * max(1, workers))
    gpus_each = usual if limits.gpus_per_trial is None else limits.gpus_per_trial
    if workers and gpus_each != usual:
        raise UserError(
            f"--gpus-per-trial: each of a trial's {workers} workers takes {count(wants_gpu, 'GPU')}, got "
            f"{gpus_each:g}; leave it out, and use --set resources.device=cpu for none"
        )
    for option, at_once in (("--concurrent", concurrent or 1), ("--at-once", limits.searches)):
        if workers and not asked.cpus_per_worker and at_once > 1:
            raise UserError(
                f"{option}: each trial's {workers} workers share all CPUs, got {at_once} at once; "
                f"set resources.cpus_per_worker, or leave {option} out"
            )
    needed = (workers * asked.cpus_per_worker or cpus) if workers else threads
    if needed > cpus:
        raise UserError(
            f"resources: a trial needs {needed:g} CPUs, the cluster has {cpus:g}; use fewer workers or threads"
        )
    if gpus_each > gpus:
        raise UserError(
            f"--gpus-per-trial: a trial needs {gpus_each:g}, the cluster has {gpus:g}; "
            "ask for less or use --set resources.device=cpu"
        )
    fit = int(cpus / needed + 1e-9)
    if gpus_each:
        per_gpu = math.floor(1 / gpus_each + 1e-9)  # a share is on one card; Ray never splits it over two
        fit = min(fit, int(gpus) * per_gpu if gpus_each <= 1 else int(gpus // gpus_each))
    if concurrent is not None and concurrent < 1:
        raise UserError(f"--concurrent: at least one trial at once, got {concurrent}; leave it out for as many as fit")
    if concurrent is not None and concurrent > fit:
        shares = ", and a share must fit one card" if 0 < gpus_each < 1 else ""
        raise UserError(
            f"--concurrent: {concurrent} x {needed:g} CPUs = {concurrent * needed:g} and "
            f"{concurrent} x {gpus_each:g} GPUs = {concurrent * gpus_each:g}, "
            f"the cluster has {cpus:g} CPUs and {gpus:g} GPUs{shares}; use at most {fit}"
        )
    at_once = min(concurrent or fit, num_trials)
    if workers:
        return TrialResources(at_once, 0.0, 0.0, threads, worker_gpus=gpus_each)
    return TrialResources(at_once, float(threads), gpus_each, threads)
