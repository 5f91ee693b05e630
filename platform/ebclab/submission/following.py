"""Follow the log of a job over an unreliable connection; the job does not depend on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from ebclab.cluster.jobs import Jobs, JobState
from ebclab.errors import EbclabError, UnreachableError

_QUIET_SECONDS = 20.0  # without output for this long, the job server is polled
_PAUSES = (
    1.0,
    2.0,
    4.0,
    8.0,
    15.0,
)  # seconds before each reconnection attempt; long enough for a laptop to resume and join its network


def follow(
    jobs: Jobs,
    job_id: str,
    write: Callable[[str], None],
    *,
    note: Callable[[str], None],
    pauses: Sequence[float] = _PAUSES,
    quiet_seconds: float = _QUIET_SECONDS,
) -> JobState:
    """Write a job's log from its beginning as it grows; return the job's final state.

    Args:
        jobs: The cluster's jobs.
        write: Called with chunks of the log.
        note: Called with messages about the connection.
        pauses: Seconds before each reconnection attempt; the sequence restarts after a connection that received text.
        quiet_seconds: Seconds without output after which the state of the job is polled, to detect a lost connection.
    """
    log = JobLog(job_id, write)
    left = list(pauses)
    while True:
        before = log.seen
        try:
            job = asyncio.run(_copy(jobs, job_id, log, quiet_seconds))
            if job.is_over:
                return job
            reason = "the log ended before the job"
        except UnreachableError as error:
            reason = str(error)
        if log.seen > before:
            left = list(pauses)
        if not left:
            raise EbclabError(f"the connection is lost and {job_id} may continue, got {reason}")
        note(f"connection lost, the job continues; trying again in {left[0]:g} s")
        time.sleep(left.pop(0))


async def _copy(jobs: Jobs, job_id: str, log: JobLog, quiet_seconds: float) -> JobState:
    """Copy the log until its end; return the state of the job at that time."""
    pieces = jobs.log(job_id)
    log.start_over()
    next_piece = asyncio.ensure_future(anext(pieces, None))
    while True:
        done, _ = await asyncio.wait({next_piece}, timeout=quiet_seconds)
        if not done:
            await asyncio.to_thread(jobs.state, job_id)
            continue
        if (piece := next_piece.result()) is None:
            return await asyncio.to_thread(jobs.state, job_id)
        log.add(piece)
        next_piece = asyncio.ensure_future(anext(pieces, None))


class JobLog:
    """Forwards a job's log: each character once, without the lines that Ray writes before those of the job.

    Args:
        write: Called with text that has not been received before.

    Attributes:
        seen: Number of distinct characters received so far, over all connections.
    """

    def __init__(self, job_id: str, write: Callable[[str], None]) -> None:
        self._write = write
        self._opening = f"Running entrypoint for job {job_id}:"
        self._is_open = False
        self._held = ""
        self._position = 0
        self.seen = 0

    def start_over(self) -> None:
        """Expect the log from its beginning; call this for each new connection."""
        self._position = 0

    def add(self, text: str) -> None:
        """Process the next chunk of the log."""
        new = text[max(self.seen - self._position, 0) :]
        self._position += len(text)
        self.seen = max(self.seen, self._position)
        if not self._is_open:
            new = self._past_opening(new)
        if new:
            self._write(new)

    def _past_opening(self, text: str) -> str:
        """Return the text after the line with which Ray starts the job's process; empty until that line is received."""
        self._held += text
        _, opening, rest = self._held.partition(self._opening)
        _, newline, rest = rest.partition("\n")
        if not opening or not newline:
            return ""
        self._is_open = True
        return rest
