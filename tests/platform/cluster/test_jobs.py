"""Submitted jobs: the job server's address, a log over connections that break, and what the end of a job means here."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from ebclab.cluster import jobs as jobs_module
from ebclab.cluster.jobs import JobLog, JobState, choose_address, follow, plain_text_warning, verdict
from ebclab.errors import EbclabError, UnreachableError, UserError

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


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "_PAUSES", (0.0, 0.0))
    monkeypatch.setattr(jobs_module, "_QUIET_SECONDS", 0.01)


def _followed(jobs: FakeJobs) -> tuple[str, list[str], JobState]:
    written: list[str] = []
    notes: list[str] = []
    job = follow(jobs, "j", written.append, note=notes.append)
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
    with pytest.raises(EbclabError, match="the log ended before the job"):  # as a broken connection
        _followed(FakeJobs(OPENING + "a\n", [], status="RUNNING"))
    growing = [len(OPENING) + place for place in (1, 2, 3, 4, 5)]  # five breaks, and only two tries in a row
    assert _followed(FakeJobs(OPENING + "abcdef\n", growing))[0] == "abcdef\n"


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
            yield OPENING
            while self.asked < 3:
                await asyncio.sleep(0.001)

    jobs = Silent("", [])
    follow(jobs, "j", lambda text: None, note=lambda text: None)
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
    assert job.is_over
    assert not JobState("j", "PENDING").is_over


@pytest.mark.parametrize(
    ("asked", "environment", "expected"),
    [
        (None, {}, "http://127.0.0.1:8265"),
        ("http://head:1/", {"RAY_API_SERVER_ADDRESS": "http://other:2"}, "http://head:1"),
        ("head:9000", {}, "http://head:9000"),
        ("https://gateway/ray", {}, "https://gateway/ray"),
        (None, {"RAY_API_SERVER_ADDRESS": "http://a:1", "RAY_ADDRESS": "http://b:2"}, "http://a:1"),
        (None, {"RAY_ADDRESS": "http://b:2"}, "http://b:2"),
        (None, {"RAY_ADDRESS": "10.0.0.1:6379"}, "http://127.0.0.1:8265"),  # a cluster's address has no job server
    ],
)
def test_what_is_asked_for_comes_before_the_environment_and_that_before_the_tunnel(asked, environment, expected):
    assert choose_address(asked, environment) == expected


@pytest.mark.parametrize(
    "wrong", ["ray://head:10001", "http://head:port", "http://", "auto://x y", "http://head:99999"]
)
def test_what_is_no_address_of_a_job_server_is_refused_with_its_origin(wrong: str) -> None:
    with pytest.raises(UserError, match=r"^--address: not the address of a job server, got"):
        choose_address(wrong, {})
    with pytest.raises(UserError, match=r"^RAY_API_SERVER_ADDRESS: not the address"):
        choose_address(None, {"RAY_API_SERVER_ADDRESS": wrong})


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UserError, match="--address") as caught:
        choose_address("http://me:secret@head:8265", {})
    assert "secret" not in str(caught.value)


def test_a_token_on_an_open_network_is_warned_of() -> None:
    token = {"RAY_AUTH_TOKEN": "t", "RAY_AUTH_MODE": "token"}
    assert plain_text_warning("http://head:8265", {"RAY_AUTH_TOKEN": "t"}) is None  # it is not sent there
    assert "head unencrypted" in (plain_text_warning("http://head:8265", token) or "")
    assert plain_text_warning("https://head", token) is None
    assert plain_text_warning("http://127.0.0.1:8265", token) is None
    assert plain_text_warning("http://[::1]:8265", token) is None
    assert plain_text_warning("http://head:8265", {"HOME": "/nowhere", "RAY_AUTH_MODE": "token"}) is None
