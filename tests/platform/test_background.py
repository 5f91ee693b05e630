"""Repeated work in a thread continues after errors; a call that hangs is in test_workspace.py."""

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


def test_a_call_that_hangs_is_left_and_a_warning_given_only_if_something_is_lost(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_PATIENCE", 0.01)
    for what, said in (("an upload", ["an upload has no answer after 0 s and is left alone"]), ("", [])):
        begun, answer = threading.Event(), threading.Event()

        def hang(begun: threading.Event = begun, answer: threading.Event = answer) -> None:
            begun.set()
            answer.wait(20)

        with background.repeating(hang, 0.001, what):
            assert begun.wait(20)
        assert caplog.messages == said
        answer.set()
        caplog.clear()
