"""What a cluster knows about a job, and what its end means here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

_ENDS = ("SUCCEEDED", "FAILED", "STOPPED")
_INTERRUPTED = 130
_NOT_FOUND = 127


@dataclass(frozen=True)
class JobState:
    """A job as its cluster describes it.

    Attributes:
        id: Its name.
        status: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED.
        command: What the head node was told to run.
        message: What Ray says about it.
        exit_code: Of its process; None while it runs, or when Ray ended it.
        started: Seconds since 1970.
        ended: Seconds since 1970; None while it runs.
    """

    id: str
    status: str
    command: str = ""
    message: str = ""
    exit_code: int | None = None
    started: float | None = None
    ended: float | None = None

    @property
    def is_over(self) -> bool:
        """Nothing more will come."""
        return self.status in _ENDS


class Jobs(Protocol):
    """The jobs of one cluster."""

    def state(self, job_id: str) -> JobState: ...

    def log(self, job_id: str) -> AsyncIterator[str]: ...


def verdict(job: JobState) -> tuple[int, str | None]:
    """Return the exit code that the end of a job means here, and a sentence where its own log may lack one.

    Args:
        job: A job that is over. Its own exit code passes through.
    """
    if job.status == "STOPPED":
        return _INTERRUPTED, f"{job.id} was stopped; submitting the same command again goes on from what it saved"
    if job.exit_code is None:
        return (0, None) if job.status == "SUCCEEDED" else (1, f"{job.id}: Ray ended it, got {_core(job.message)}")
    if job.exit_code < 0 or (job.exit_code > 128 and job.exit_code != _INTERRUPTED):
        number = -job.exit_code if job.exit_code < 0 else job.exit_code - 128
        advice = "; out of memory on the head node? " if number == 9 else "; "
        return (
            1,
            f"{job.id}: its process was ended by signal {number}{advice}the same command goes on from what it saved",
        )
    if job.exit_code == _NOT_FOUND:
        return 1, f"{job.id}: the head node has no `python` on its path; start Ray from the environment that has it"
    return job.exit_code, None


def _core(message: str) -> str:
    """Return the line of one of Ray's messages that says most: the last of a traceback."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    return (lines[-1] if "Traceback" in message else lines[0]) if lines else "no reason"
