"""A log over connections that break: each character once; what the end of a job means here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from ebclab.cluster.jobs import JobState, verdict
from ebclab.errors import EbclabError, UnreachableError, UserError
from ebclab.submission.following import JobLog, follow

OPENING = "2026-01-01 INFO job_manager.py -- Runtime env is setting up.\nRunning entrypoint for job j: cd ~ && exec x\n"


class FakeJobs:
    """A cluster whose log breaks off where it is told to, once for each connection."""

    def __init__(self, text: str, breaks: Sequence[int], status: str = "SUCCEEDED", piece: int = 7) -> None:
        self.text, self.breaks, self.status, self.piece = text, list(breaks), status, piece
        self.asked = 0

    def state(self, job_id: str) -> JobState:
        self.asked += 1
        return JobState(job_id, self.status, exit_code=0)

    async def log(self, job_id: str) -> AsyncIterator[str]:
        end = self.breaks.pop(0) if self.breaks else None
        text = self.text[:end]
        for start in range(0, len(text), self.piece):
            yield text[start : start + self.piece]
        if end is not None:
            raise UnreachableError("gone")


def _followed(jobs: FakeJobs, pauses: Sequence[float] = (0.0, 0.0)) -> tuple[str, list[str], JobState]:
    written: list[str] = []
    notes: list[str] = []
    job = follow(jobs, "j", written.append, note=notes.append, pauses=pauses)
    return "".join(written), notes, job


@pytest.mark.parametrize("piece", [1, 3, 1000])
@pytest.mark.parametrize("breaks", [[], [0], [90], [0, 20, 115], [len(OPENING), len(OPENING) + 4]])
def test_each_line_comes_once_whatever_breaks_and_ray_s_own_lines_do_not(piece: int, breaks: list[int]) -> None:
    own = "".join(f"epoch {number}\n" for number in range(10))
    text, notes, job = _followed(FakeJobs(OPENING + own, breaks, piece=piece))
    assert text == own
    assert len(notes) == len(breaks)
    assert all(note.startswith("connection lost, the job continues; trying again in") for note in notes)
    assert job.status == "SUCCEEDED"


def test_a_connection_that_brings_nothing_is_given_up_and_one_that_does_is_not() -> None:
    with pytest.raises(EbclabError, match="the connection is lost and j may continue, got gone") as caught:
        _followed(FakeJobs(OPENING + "a\n", [0, 0, 0]))
    assert caught.value.exit_code == 1
    growing = [len(OPENING) + place for place in (1, 2, 3, 4, 5)]  # five breaks, and only two tries in a row
    assert _followed(FakeJobs(OPENING + "abcdef\n", growing))[0] == "abcdef\n"


def test_a_log_that_ends_while_the_job_runs_is_a_broken_connection() -> None:
    jobs = FakeJobs(OPENING + "a\n", [], status="RUNNING")
    with pytest.raises(EbclabError, match="the log ended before the job"):
        _followed(jobs)


def test_a_refusal_is_not_tried_again() -> None:
    class Refusing(FakeJobs):
        async def log(self, job_id: str) -> AsyncIterator[str]:
            yield OPENING
            raise UserError("no such job")

    with pytest.raises(UserError, match="no such job"):
        _followed(Refusing("", []))


def test_a_silent_job_s_cluster_is_asked_whether_it_is_there() -> None:
    class Silent(FakeJobs):
        async def log(self, job_id: str) -> AsyncIterator[str]:
            import asyncio

            yield OPENING
            while self.asked < 3:
                await asyncio.sleep(0.001)

    jobs = Silent("", [])
    follow(jobs, "j", lambda text: None, note=lambda text: None, quiet_seconds=0.002)
    assert jobs.asked == 4  # three times while it was silent, once at its end


def test_nothing_is_written_of_a_job_whose_process_never_began() -> None:
    written: list[str] = []
    log = JobLog("j", written.append)
    log.add("Runtime env is setting up.\nruntime_env setup failed: pages of text")
    assert written == []


@pytest.mark.parametrize(
    ("job", "code", "sentence"),
    [
        (JobState("j", "SUCCEEDED", exit_code=0), 0, None),
        (JobState("j", "SUCCEEDED"), 0, None),
        (JobState("j", "FAILED", exit_code=1), 1, None),
        (JobState("j", "FAILED", exit_code=2), 2, None),
        (JobState("j", "FAILED", exit_code=130), 130, None),
        (JobState("j", "STOPPED"), 130, "was stopped; submitting the same command again resumes"),
        (JobState("j", "FAILED", exit_code=-9), 1, "signal 9; out of memory on the head node?"),
        (JobState("j", "FAILED", exit_code=137), 1, "signal 9; out of memory"),
        (JobState("j", "FAILED", exit_code=-15), 1, "signal 15; the same command"),
        (JobState("j", "FAILED", exit_code=127), 1, "no `python` on its path"),
        (JobState("j", "FAILED", message="Job supervisor actor died: x\nmore"), 1, "got Job supervisor actor died: x"),
        (JobState("j", "FAILED", message="Traceback (most\n  File\nValueError: why\n"), 1, "got ValueError: why"),
        (JobState("j", "FAILED"), 1, "got no reason"),
    ],
)
def test_the_end_of_a_job_is_an_exit_code_here(job: JobState, code: int, sentence: str | None) -> None:
    found, said = verdict(job)
    assert found == code
    assert (said is None) if sentence is None else (sentence in (said or ""))


def test_a_job_is_over_in_three_states() -> None:
    states = ("PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED")
    assert [JobState("j", status).is_over for status in states] == [False, False, True, True, True]
