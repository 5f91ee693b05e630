"""A job's log as it grows, over a connection that may break; the job never notices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from ebclab.cluster.jobs import Jobs, JobState
from ebclab.errors import EbclabError, UnreachableError

_QUIET_SECONDS = 20.0  # without a line for so long, the cluster is asked whether it is still there
_PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0)  # seconds before each new try; a laptop that wakes up finds its network in between


def follow(
    jobs: Jobs,
    job_id: str,
    write: Callable[[str], None],
    *,
    note: Callable[[str], None],
    pauses: Sequence[float] = _PAUSES,
    quiet_seconds: float = _QUIET_SECONDS,
) -> JobState:
    """Write a job's log as it grows, from its beginning, and return how the job ended.

    Args:
        jobs: The cluster's jobs.
        job_id: Which.
        write: Takes pieces of text.
        note: Takes a line about the connection.
        pauses: Seconds before each try to connect again; after a try that brought something they begin anew.
        quiet_seconds: How long the log may be silent before the cluster is asked whether it is still there.

    Raises:
        EbclabError: The connection is lost for good; the job may go on.
        UserError: There is no such job, or the token is refused.
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
            raise EbclabError(f"the connection is lost and {job_id} may go on, got {reason}")
        note(f"connection lost, the job goes on; trying again in {left[0]:g} s")
        time.sleep(left.pop(0))


async def _copy(jobs: Jobs, job_id: str, log: JobLog, quiet_seconds: float) -> JobState:
    """Copy the log until it ends; return what the cluster says of the job then."""
    pieces = jobs.log(job_id)
    log.start_over()
    coming = asyncio.ensure_future(anext(pieces, None))
    while True:
        done, _ = await asyncio.wait({coming}, timeout=quiet_seconds)
        if not done:
            await asyncio.to_thread(jobs.state, job_id)
            continue
        if (piece := coming.result()) is None:
            return await asyncio.to_thread(jobs.state, job_id)
        log.add(piece)
        coming = asyncio.ensure_future(anext(pieces, None))


class JobLog:
    """Passes a job's log on, each character once, without the lines that Ray puts before the job's own.

    Args:
        job_id: Which job.
        write: Takes what is new.

    Attributes:
        seen: Characters received so far, over all connections.
    """

    def __init__(self, job_id: str, write: Callable[[str], None]) -> None:
        self._write = write
        self._opening = f"Running entrypoint for job {job_id}:"
        self._is_open = False
        self._held = ""
        self._position = 0
        self.seen = 0

    def start_over(self) -> None:
        """Expect the log from its beginning, as every connection brings it."""
        self._position = 0

    def add(self, text: str) -> None:
        """Take the next piece of the log."""
        new = text[max(self.seen - self._position, 0) :]
        self._position += len(text)
        self.seen = max(self.seen, self._position)
        if not self._is_open:
            new = self._past_opening(new)
        if new:
            self._write(new)

    def _past_opening(self, text: str) -> str:
        """Return what follows the line with which Ray starts the job's process; nothing as long as it has not come."""
        self._held += text
        _, opening, rest = self._held.partition(self._opening)
        _, newline, rest = rest.partition("\n")
        if not opening or not newline:
            return ""
        self._is_open = True
        return rest
