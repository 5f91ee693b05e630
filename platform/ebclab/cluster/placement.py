"""How many workers a run gets, and which CPUs and GPUs each of them reserves; pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ebclab.errors import UserError
from ebclab.formatting import count

TRIES = 2
"""Attempts of a job whose process dies: a machine may be preempted, but a job that ends its process does so again."""

Nodes = Sequence[Mapping[str, float]]
"""Resources of each node of a cluster, e.g. {"CPU": 8, "GPU": 1}."""


@dataclass(frozen=True)
class Placement:
    """The workers that a run requests from a cluster."""

    # numbers of workers that the run may have, ascending; a single one unless the run is elastic
    sizes: tuple[int, ...]
    cpus: float  # CPUs that each worker reserves; fractions are allowed
    gpus: int  # GPUs that each worker reserves, 0 or 1

    @property
    def elastic(self) -> bool:
        """Whether the number of workers may change during the run."""
        return len(self.sizes) > 1

    @property
    def threads(self) -> int:
        """Default number of CPU threads of a worker: the CPUs that it reserved, at least one."""
        return max(1, int(self.cpus))

    def in_words(self) -> str:
        """Return the number of workers and the resources of each, as text."""
        workers = count(self.sizes[0], "worker") if not self.elastic else " or ".join(map(str, self.sizes)) + " workers"
        each = count(self.cpus, "CPU") + (f" and {count(self.gpus, 'GPU')}" if self.gpus else "")
        return f"{workers} with {each} each"

    def largest(self, possible: int) -> int:
        """Return the largest allowed number of workers that does not exceed ``possible``; 0 if there is none."""
        return max((size for size in self.sizes if size <= possible), default=0)

    def require_room(self, cpus: float, gpus: float) -> None:
        """Refuse a cluster that can never hold the smallest allowed number of workers."""
        fewest = self.sizes[0]
        for unit, each, has in (("GPU", self.gpus, gpus), ("CPU", self.cpus, cpus)):
            if fewest * each > has:
                remedy = (
                    "use fewer workers or resources.device=cpu"
                    if unit == "GPU"
                    else "use fewer workers or a smaller resources.cpus_per_worker"
                )
                raise UserError(
                    f"resources.workers: {count(fewest, 'worker')} x {count(each, unit)} = "
                    f"{count(fewest * each, unit)}, the cluster has {has:g}; {remedy}"
                )

    def require_places(self, nodes: Nodes) -> None:
        """Refuse nodes that can never hold the smallest allowed number of workers, even if their total suffices."""
        if (held := places(nodes, self.cpus, self.gpus)) < self.sizes[0]:
            raise UserError(
                f"resources.workers: a worker must fit one node, got {self.in_words()}, and the nodes hold "
                f"{held:g} of them; use fewer workers or a smaller resources.cpus_per_worker"
            )


def allowed_sizes(
    fewest: int, most: int, *, batch_size: int, groups: Iterable[int], chunks: int = 1
) -> tuple[int, ...]:
    """Return the numbers of workers in [fewest, most] that split a global batch evenly, ascending.

    Args:
        groups: For each batch norm, the number of groups into which it cuts a global batch; 1 means none.
        chunks: The chunks in which a global batch passes, each of which is split evenly too.
    """
    to_split = {batch_size // chunks, *(number for number in groups if number > 1)}
    splits = [size for size in range(1, batch_size + 1) if all(part % size == 0 for part in to_split)]
    sizes = tuple(size for size in splits if fewest <= size <= most)
    if not sizes:
        asked = str(fewest) if fewest == most else f"{fewest}:{most}"
        parts = "".join(f" and of {number} batch norm groups" for number in sorted(set(groups) - {1}))
        what = f"a batch of {batch_size}{f' in {chunks} chunks' if chunks > 1 else ''}{parts}"
        near = sorted(sorted(splits, key=lambda size: abs(size - fewest))[:4])
        raise UserError(
            f"resources.workers: every worker gets an equal share of {what}, got {asked} workers; "
            f"use {', '.join(map(str, near))} or change training.batch_size"
        )
    return sizes


def places(nodes: Nodes, cpus: float, gpus: float) -> float:
    """Return how many processes that each reserve ``cpus`` and ``gpus`` on a single node fit on these nodes."""
    return sum(
        min((node.get(unit, 0) / each + 1e-9) // 1 for unit, each in (("CPU", cpus), ("GPU", gpus)) if each)
        for node in nodes
        if cpus or gpus
    )


def even_share(nodes: Nodes, workers: int, *, cpus: float = math.inf, gpus: int = 0) -> float:
    """Return the largest integer number of CPUs that each of ``workers`` can reserve on these nodes, at least 1."""
    for share in range(int(max((node.get("CPU", 0) for node in nodes), default=1)), 1, -1):
        if workers * share <= cpus and places(nodes, share, gpus) >= workers:
            return float(share)
    return 1.0


def cpu_reservation(nodes: Nodes, workers: int, *, cpus: float, gpus: int = 0) -> float:
    """Return the CPUs that each worker of a streamed run reserves; fractions are allowed.

    One CPU remains free for Ray Data, whose tasks could not start otherwise.
    """
    each = (cpus - 1) / workers
    if each <= 0:
        raise UserError(
            f"resources.workers: {workers} x more than 0 CPUs for the workers + 1 for Ray Data exceed the "
            f"cluster's CPUs, got {cpus:g}; add CPUs or set data.delivery=resident"
        )
    if each >= 1:
        return even_share(nodes, workers, cpus=cpus - 1, gpus=gpus)
    return math.floor(each * 10_000) / 10_000  # Ray's resolution is 0.0001


def fed_workers(cpus: float, reserved: float, *, streamed: bool) -> int:
    """Return how many workers that reserve ``reserved`` CPUs each fit on a cluster; a stream needs one more CPU."""
    return max(0, math.floor((cpus - (1 if streamed else 0)) / reserved + 1e-9))


def require_cpus(cpus: float, workers: int, reserved: float, *, streamed: bool) -> None:
    """Refuse a reservation that the cluster cannot hold; a stream needs one more CPU for Ray Data."""
    needed = workers * reserved + (1 if streamed else 0)
    if needed > cpus + 1e-9:
        data = " + 1 for Ray Data" if streamed else ""
        raise UserError(
            f"resources.workers: the cluster has too few CPUs, got {cpus:g} for {workers} workers x {reserved:g}{data} "
            f"= {needed:g}; use fewer workers or reserve fewer CPUs for each"
        )
