"""The first signal asks, the second acts, and afterwards everything is as before."""

import os
import signal
import threading

import pytest

from ebclab.errors import InterruptedRunError
from ebclab.runs.stop_request import StopFlag, resumable, stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_sets_the_flag_and_gives_the_handlers_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    flag = StopFlag()
    with stop_on_signals(flag):
        assert signal.getsignal(number) != before
        os.kill(os.getpid(), number)
        assert flag.is_set
        assert signal.getsignal(number) == before
    assert signal.getsignal(number) == before


def test_a_second_ctrl_c_aborts() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with stop_on_signals(StopFlag()):
            os.kill(os.getpid(), signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_the_main_thread_nothing_is_touched() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with stop_on_signals(StopFlag()):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_an_interrupt_says_where_what_is_done_is_saved() -> None:
    saved = "what is done is saved in some/folder; the same command resumes"
    with pytest.raises(InterruptedRunError, match=saved), resumable("some/folder"):
        raise KeyboardInterrupt
