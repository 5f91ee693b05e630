"""Submitted jobs, without Ray's client: the job server's address, a job's state and exit code, following its log.

The log is followed over an unreliable connection, on which the job does not depend.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from ebclab.cluster.address import sends_token, token_source
from ebclab.config.addresses import credentials_problem, is_address
from ebclab.errors import EbclabError, UnreachableError, UserError

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
"""The local end of the tunnel that ``ray dashboard cluster.yaml`` opens; on a head node, the job server itself."""

_ASKED = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

_ENDS = ("SUCCEEDED", "FAILED", "STOPPED")
_INTERRUPTED = 130
_NOT_FOUND = 127

_QUIET_SECONDS = 20.0  # without output for this long, the job server is polled, to detect a lost connection
_PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds before each reconnection attempt; long enough for a laptop to resume and join its network.

They begin anew after a connection that received text.
"""


def choose_address(asked: str | None, environment: Mapping[str, str]) -> str:
    """Return the http address of the job server: ``asked``, else from the environment, else that of the tunnel.

    Args:
        environment: Environment variables. RAY_ADDRESS is used only if it is a URL; a GCS address has no
            job server.
    """
    named = {"--address": asked} | {
        name: value for name in _ASKED if is_address(value := environment.get(name, "")) or name != "RAY_ADDRESS"
    }
    where, address = next(((where, text) for where, text in named.items() if text), ("", DEFAULT_ADDRESS))
    if problem := credentials_problem(address):
        raise UserError(f"{where}: {problem}")
    text = (address if is_address(address) else f"http://{address}").rstrip("/")
    if not _is_http(text):
        raise UserError(
            f"{where}: not the address of a job server, got {address}; write http://HOST:PORT, or leave it out: "
            f"`ray dashboard cluster.yaml` brings the cluster's to {DEFAULT_ADDRESS}"
        )
    return text


def _is_http(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in ("http", "https") and bool(parts.hostname) and (":" not in parts.netloc or parts.port != 0)
        )
    except ValueError:  # the port is not a number
        return False


def plain_text_warning(address: str, environment: Mapping[str, str]) -> str | None:
    """Return a warning if the token will be sent unencrypted over a network, else None."""
    parts = urlsplit(address)
    if parts.scheme == "https" or parts.hostname in _LOOPBACK:
        return None
    if not sends_token(environment) or not token_source(environment).is_set:
        return None
    return f"the token goes to {parts.hostname} unencrypted; use https or the tunnel of `ray dashboard cluster.yaml`"


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

    The job's own exit code is passed on, unless a signal ended it.
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


def follow(jobs: Jobs, job_id: str, write: Callable[[str], None], *, note: Callable[[str], None]) -> JobState:
    """Write a job's log from its beginning as it grows; return its final state; ``note`` tells of reconnections."""
    log = JobLog(job_id, write)
    left = list(_PAUSES)
    while True:
        before = log.seen
        try:
            job = asyncio.run(_copy(jobs, job_id, log))
            if job.is_over:
                return job
            reason = "the log ended before the job"
        except UnreachableError as error:
            reason = str(error)
        if log.seen > before:
            left = list(_PAUSES)
        if not left:
            raise EbclabError(f"the connection is lost and {job_id} may continue, got {reason}")
        note(f"connection lost, the job continues; trying again in {left[0]:g} s")
        time.sleep(left.pop(0))


async def _copy(jobs: Jobs, job_id: str, log: JobLog) -> JobState:
    """Copy the log until its end; return the state of the job at that time."""
    pieces = jobs.log(job_id)
    log.start_over()
    next_piece = asyncio.ensure_future(anext(pieces, None))
    while True:
        done, _ = await asyncio.wait({next_piece}, timeout=_QUIET_SECONDS)
        if not done:
            await asyncio.to_thread(jobs.state, job_id)
            continue
        if (piece := next_piece.result()) is None:
            return await asyncio.to_thread(jobs.state, job_id)
        log.add(piece)
        next_piece = asyncio.ensure_future(anext(pieces, None))


class JobLog:
    """Forwards a job's log: each character once, without the lines that Ray writes before those of the job.

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
