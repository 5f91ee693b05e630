"""Repeated work in a thread continues after errors; a call that hangs is in test_workspace.py."""

import threading
import time

import pytest

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
