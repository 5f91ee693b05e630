"""Schedules the jobs of an evaluation, including retries of jobs whose worker died; does not depend on Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ebclab.cluster.placement import TRIES


@dataclass(frozen=True)
class Job:
    """One unit of work."""

    card: int  # index
    what: str  # name of a group, or of features
    # names of the features that a group requires before it starts; empty for features
    needs: frozenset[str] = frozenset()
    computes: bool = False  # computes features; otherwise it measures a group
    is_long: bool = False  # is started early


@dataclass
class Schedule:
    """The jobs that are not completed."""

    waiting: list[Job]  # not assigned to a worker
    ready: set[str] = field(default_factory=set)  # names of features that are available, or have failed
    _begun: Counter[Job] = field(default_factory=Counter)

    @classmethod
    def of(cls, jobs: Sequence[Job], ready: set[str]) -> Schedule:
        """Return a schedule of jobs; features that several cards need are computed once, for the first of them."""
        first = {job.what: job for job in reversed(jobs) if job.computes and job.what not in ready}
        groups = [job for job in jobs if not job.computes]
        needed = frozenset().union(*(job.needs for job in groups))
        return cls([*(job for job in jobs if first.get(job.what) is job and job.what in needed), *groups], set(ready))

    def next(self, card: int | None) -> Job | None:
        """Return the next job for an idle worker, and remove it from ``waiting``; None if no job can start.

        Features have priority, since groups wait for them; then long groups; then groups of the worker's last card,
        whose classifier it may have cached.
        """
        able = [job for job in self.waiting if job.needs <= self.ready]
        if not able:
            return None
        chosen = min(able, key=lambda job: (not job.computes, not job.is_long, job.card != card))  # first among ties
        self.waiting.remove(chosen)
        self._begun[chosen] += 1
        return chosen

    def done(self, job: Job) -> None:
        """Record that a job has ended, whether it succeeded or failed."""
        if job.computes:
            self.ready.add(job.what)

    def died(self, job: Job) -> bool:
        """Requeue a job whose worker died, unless its attempts are used up; return whether it was requeued."""
        again = self._begun[job] < TRIES
        if again:
            self.waiting.insert(0, job)
        else:
            self.done(job)
        return again
