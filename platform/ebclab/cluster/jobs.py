"""The state of a submitted job, and the exit code derived from how it ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

_ENDS = ("SUCCEEDED", "FAILED", "STOPPED")
_INTERRUPTED = 130
_NOT_FOUND = 127


@dataclass(frozen=True)
class JobState:
    """A job as the job server describes it."""

    id: str  # its name
    status: str  # PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED
    command: str = ""  # the shell command that the head node runs
    message: str = ""  # ray's message about the job
    exit_code: int | None = None  # exit code of the process; None while it runs, or if Ray terminated it
    started: float | None = None  # seconds since 1970
    ended: float | None = None  # seconds since 1970; None while it runs

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.status in _ENDS


class Jobs(Protocol):
    """The jobs of one cluster."""

    def state(self, job_id: str) -> JobState: ...

    def log(self, job_id: str) -> AsyncIterator[str]: ...


def verdict(job: JobState) -> tuple[int, str | None]:
    """Return the exit code for a job that has ended, and a message if the job's own log may not explain it.

    Args:
        job: A job that has ended. Its own exit code is passed on, unless a signal ended it.
    """
    if job.status == "STOPPED":
        return _INTERRUPTED, f"{job.id} was stopped; submitting the same command again resumes from what it saved"
    if job.exit_code is None:
        return (0, None) if job.status == "SUCCEEDED" else (1, f"{job.id}: Ray ended it, got {_core(job.message)}")
    if job.exit_code < 0 or (job.exit_code > 128 and job.exit_code != _INTERRUPTED):
        number = -job.exit_code if job.exit_code < 0 else job.exit_code - 128
        advice = "; out of memory on the head node? " if number == 9 else "; "
        return (
            1,
            f"{job.id}: its process was ended by signal {number}{advice}the same command resumes from what it saved",
        )
    if job.exit_code == _NOT_FOUND:
        return 1, f"{job.id}: the head node has no `python` on its path; start Ray from the environment that has it"
    return job.exit_code, None


def _core(message: str) -> str:
    """Return the most informative line of one of Ray's messages: the last line of a traceback, else the first."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    return (lines[-1] if "Traceback" in message else lines[0]) if lines else "no reason"
