"""A store that does not answer is asked again; one that refuses is not."""

from __future__ import annotations

import errno
import os

import pytest

from ebclab.errors import RunError, UserError
from ebclab.storage import retry as patience
from ebclab.storage.retry import PATIENCE, patience_seconds, with_retries


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made; the clock goes on by them alone."""
    made: list[float] = []
    monkeypatch.setattr(patience.time, "sleep", made.append)
    monkeypatch.setattr(patience.time, "monotonic", lambda: sum(made))
    return made


def failing(times: int, error: Exception) -> list[Exception]:
    return [error] * times


def asker(errors: list[Exception]):  # type: ignore[no-untyped-def]
    def ask() -> str:
        if errors:
            raise errors.pop()
        return "answer"

    return ask


def test_pauses_double_up_to_fifteen_seconds(pauses: list[float]) -> None:
    assert with_retries(asker(failing(8, OSError("away"))), "s3://b/run", seconds=600) == "answer"
    assert pauses == [0.5, 1, 2, 4, 8, 15, 15, 15]


def test_it_is_given_up_before_the_time_is_over_and_says_how_to_go_on(pauses: list[float]) -> None:
    with pytest.raises(RunError, match=r"s3://b/run: the store has not answered for 16 s, got away; the same command"):
        with_retries(asker(failing(99, OSError("away"))), "s3://b/run", seconds=30)
    assert sum(pauses) == 15.5


@pytest.mark.parametrize(
    "said",
    [
        "When creating key 'x': AWS Error ACCESS_DENIED during PutObject operation",
        "AWS Error NO_SUCH_BUCKET during CreateMultipartUpload",
        "AWS Error UNKNOWN (HTTP status 403) during HeadObject operation",
        "google::cloud::Status(PERMISSION_DENIED: no)",
    ],
)
def test_a_refusal_is_told_at_once(said: str, pauses: list[float]) -> None:
    with pytest.raises(RunError, match="the store refuses, got "):
        with_retries(asker(failing(1, OSError(said))), "s3://b/run", seconds=600)
    assert pauses == []


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EACCES, "check its permissions"),
        (errno.EROFS, "check its permissions"),
        (errno.ENOTDIR, "check the path"),
        (errno.ENAMETOOLONG, "check the path"),
    ],
)
def test_what_a_disk_of_this_machine_refuses_is_told_at_once(number: int, remedy: str, pauses: list[float]) -> None:
    reason = os.strerror(number)
    with pytest.raises(RunError, match=f"a disk cannot be written to, got .*{reason}; {remedy}"):
        with_retries(asker(failing(1, OSError(number, reason))), "s3://b/run", seconds=600)
    assert pauses == []


def test_a_missing_file_is_nobodys_fault(pauses: list[float]) -> None:
    with pytest.raises(FileNotFoundError):
        with_retries(asker(failing(1, FileNotFoundError("gone"))), "s3://b/run", seconds=600)
    assert pauses == []


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_a_patience_that_is_no_number_of_seconds_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATIENCE, text)
    with pytest.raises(UserError, match=f"{PATIENCE}: not a number of seconds, got '{text}'"):
        patience_seconds()
