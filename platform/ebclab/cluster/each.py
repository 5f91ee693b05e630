"""Does jobs that do not depend on each other on the machines of the joined cluster: one a GPU, or one a machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import ray
from ray.exceptions import RayActorError

from ebclab.cluster.death import death_in_words
from ebclab.cluster.join import nodes
from ebclab.cluster.placement import TRIES
from ebclab.cluster.versions import Origin
from ebclab.errors import EbclabError, TrainingError, UserError

_POLL_SECONDS = 1.0  # after which a signal is noticed

Job = TypeVar("Job")
Result = TypeVar("Result")


def each_on_cluster(
    function: Callable[[Job], Result], jobs: Sequence[Job], /, *, cpus: float, on_gpu: bool
) -> Iterator[tuple[Job, Result | EbclabError]]:
    """Do jobs on the cluster; yield each with its result or its error, in the order in which they end.

    A process does one job after the other with one copy of ``function``, so what that keeps is read once for many.

    Args:
        cpus: CPUs that each process reserves.
        on_gpu: Whether each process reserves a GPU; else there is one process for each machine.
    """
    alive = nodes()
    places = sum(int(node.get("GPU", 0)) if on_gpu else node.get("CPU", 0) >= cpus for node in alive)
    waiting, deaths = list(range(len(jobs))), Counter[int]()
    idle: list[Any] = []
    busy: dict[ray.ObjectRef[Any], tuple[Any, int]] = {}
    origin = Origin.here()
    remote: Any = ray.remote(_Doer)
    started = remote.options(num_cpus=cpus, num_gpus=int(on_gpu), scheduling_strategy="SPREAD")
    try:
        while waiting or busy:
            while waiting and len(busy) < max(1, places):
                actor, number = idle.pop() if idle else started.remote(origin, function), waiting.pop(0)
                busy[actor.do.remote(jobs[number])] = (actor, number)
            ended, _ = ray.wait(list(busy), timeout=_POLL_SECONDS)
            for reference in ended:
                actor, number = busy.pop(reference)
                try:
                    outcome = ray.get(reference)
                    idle.append(actor)
                except RayActorError as error:
                    deaths[number] += 1
                    if deaths[number] < TRIES:
                        waiting.insert(0, number)
                        continue
                    died = death_in_words(str(error))[0] or str(error).splitlines()[0]
                    outcome = TrainingError(f"the process of {jobs[number]} died {TRIES} times, the last time {died}")
                yield jobs[number], outcome
    finally:
        for actor in [*idle, *(actor for actor, _ in busy.values())]:
            ray.kill(actor)


class _Doer:
    """A process on the cluster."""

    def __init__(self, origin: Origin, function: Callable[[Any], Any]) -> None:
        self._origin, self._function = origin, function

    def do(self, job: Any) -> Any:
        """Return the result of ``function``, or its error."""
        try:
            self._origin.require_same_here()
            return self._function(job)
        except UserError as error:
            return error
