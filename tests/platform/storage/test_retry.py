"""A store that does not answer is asked again; one that refuses is not."""

import errno
import os
from collections.abc import Callable

import pytest

from ebclab.errors import RunError, StoreError, UserError
from ebclab.storage import filesystem
from ebclab.storage.filesystem import PATIENCE, patience_seconds, with_retries


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made; the clock goes on by them alone."""
    made: list[float] = []
    monkeypatch.setattr(filesystem.time, "sleep", made.append)
    monkeypatch.setattr(filesystem.time, "monotonic", lambda: sum(made))
    return made


def failing(times: int, error: Exception) -> Callable[[], str]:
    """A request that fails so often before it is answered."""
    errors = [error] * times

    def ask() -> str:
        if errors:
            raise errors.pop()
        return "answer"

    return ask


def test_pauses_double_up_to_fifteen_seconds(pauses: list[float]) -> None:
    assert with_retries(failing(8, OSError("away")), "s3://b/run", seconds=600) == "answer"
    assert pauses == [0.5, 1, 2, 4, 8, 15, 15, 15]


def test_it_is_given_up_before_the_time_is_over_and_says_how_to_go_on(pauses: list[float]) -> None:
    with pytest.raises(RunError, match=r"s3://b/run: the store has not answered for 16 s, got away; the same command"):
        with_retries(failing(99, OSError("away")), "s3://b/run", seconds=30)
    assert sum(pauses) == 15.5


def of_the_disk(number: int) -> OSError:
    return OSError(number, os.strerror(number))


REFUSED = "the store refuses, got .*; check credentials and permissions"


@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (OSError("When creating key 'x': AWS Error ACCESS_DENIED during PutObject operation"), StoreError, REFUSED),
        (OSError("AWS Error NO_SUCH_BUCKET during CreateMultipartUpload"), StoreError, REFUSED),
        (OSError("AWS Error UNKNOWN (HTTP status 403) during HeadObject operation"), StoreError, REFUSED),
        (OSError("google::cloud::Status(PERMISSION_DENIED: no)"), StoreError, REFUSED),
        (of_the_disk(errno.ENOSPC), StoreError, "a disk cannot be written to, got .*No space.*; free some space"),
        (of_the_disk(errno.EACCES), StoreError, "a disk cannot be written to, got .*; check its permissions"),
        (of_the_disk(errno.EROFS), StoreError, "a disk cannot be written to, got .*; check its permissions"),
        (of_the_disk(errno.ENOTDIR), StoreError, "a disk cannot be written to, got .*; check the path"),
        (of_the_disk(errno.ENAMETOOLONG), StoreError, "a disk cannot be written to, got .*; check the path"),
        (FileNotFoundError("gone"), FileNotFoundError, "gone"),
    ],
)
def test_what_would_not_change_is_told_at_once(error, raised, said, pauses):
    with pytest.raises(raised, match=said):
        with_retries(failing(1, error), "s3://b/run", seconds=600)
    assert pauses == []


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_a_patience_that_is_no_number_of_seconds_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATIENCE, text)
    with pytest.raises(UserError, match=f"{PATIENCE}: not a number of seconds, got '{text}'"):
        patience_seconds()
