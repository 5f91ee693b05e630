"""Work that is repeated in a thread: it goes on after errors, and does not hold up the end."""

from __future__ import annotations

import threading
import time

import pytest

from ebclab import background
from ebclab.background import repeating


def test_work_goes_on_after_an_error_which_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    done, twice = list[int](), threading.Event()

    def work() -> None:
        done.append(1)
        if len(done) == 2:
            twice.set()
        raise OSError("once more")

    with repeating(work, 0.001, "the work"):
        assert twice.wait(20)
    count = len(done)
    time.sleep(0.05)
    assert len(done) == count  # it is over
    assert set(caplog.messages) == {"once more"}


def test_work_without_an_answer_does_not_hold_up_the_end_and_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_PATIENCE", 0.2)
    begun, answer = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        answer.wait(60)

    began = time.monotonic()
    with repeating(work, 0.001, "the question"):
        assert begun.wait(20)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert caplog.messages == ["the question has no answer after 0 s and is left alone"]
    answer.set()
