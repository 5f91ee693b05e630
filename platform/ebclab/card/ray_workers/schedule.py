"""Which job of an evaluation a free worker gets next, and what is lost with a worker that dies: no word about Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

TRIES = 2
"""How often a job is begun whose worker dies. A machine may be taken away; what ends its process does so twice."""


@dataclass(frozen=True)
class Job:
    """One piece of work.

    Attributes:
        card: Number of the card that it is for.
        what: Name of a group, or of features.
        needs: Names of the features that must be there before a group begins; features need none.
        computes: It computes features; otherwise it measures a group.
        is_long: It takes long, so it begins early.
    """

    card: int
    what: str
    needs: frozenset[str] = frozenset()
    computes: bool = False
    is_long: bool = False


@dataclass
class Schedule:
    """The jobs that are not done.

    Attributes:
        waiting: Jobs that nobody works on.
        ready: Names of features that are there, or cannot be had.
    """

    waiting: list[Job]
    ready: set[str] = field(default_factory=set)
    _begun: Counter[Job] = field(default_factory=Counter)

    @classmethod
    def of(cls, jobs: Sequence[Job], ready: set[str]) -> Schedule:
        """Return a schedule of jobs; features that several cards need are computed for the first.

        Args:
            jobs: The groups to measure, and the features that they need.
            ready: Names of features that are there already.
        """
        first = {job.what: job for job in reversed(jobs) if job.computes and job.what not in ready}
        groups = [job for job in jobs if not job.computes]
        needed = frozenset().union(*(job.needs for job in groups))
        return cls([*(job for job in jobs if first.get(job.what) is job and job.what in needed), *groups], set(ready))

    def next(self, card: int | None) -> Job | None:
        """Return the job that a free worker begins; None while there is none that can begin.

        Features come first, since others wait for them; then long groups; then those of the card that the worker has
        at hand, whose classifier it may have fitted.

        Args:
            card: The card that the worker worked on last; None for a new worker.
        """
        able = [job for job in self.waiting if job.needs <= self.ready]
        if not able:
            return None
        chosen = min(able, key=lambda job: (not job.computes, not job.is_long, job.card != card))  # the first of equals
        self.waiting.remove(chosen)
        self._begun[chosen] += 1
        return chosen

    def done(self, job: Job) -> None:
        """Note that a job is over, well or badly."""
        if job.computes:
            self.ready.add(job.what)

    def died(self, job: Job) -> bool:
        """Return whether a job whose worker died is begun again; it waits for a free worker then."""
        again = self._begun[job] < TRIES
        if again:
            self.waiting.insert(0, job)
        else:
            self.done(job)
        return again
