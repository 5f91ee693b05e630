"""The first signal asks, the second acts, and afterwards everything is as before."""

import hashlib
import os
import signal
import threading

import pytest

from ebclab.errors import InterruptedRunError
from ebclab.runs.stop_request import ASKED, StopFlag, resumable, stop_on_signals


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


def test_the_first_signal_is_answered_once_and_others_are_not() -> None:
    told: list[str] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    other = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        for count in range(3):
            with stop_on_signals(StopFlag(), told.append):
                signal.raise_signal(signal.SIGUSR1)
                if count:
                    signal.raise_signal(signal.SIGINT)
                if count == 2:
                    with pytest.raises(KeyboardInterrupt):
                        signal.raise_signal(signal.SIGINT)
            assert told == [ASKED] * count
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGUSR1, other)
    assert signal.set_wakeup_fd(-1) == -1


def test_a_signal_within_a_long_call_of_c_is_answered_before_its_end() -> None:
    """Python's own handlers wait for it, as for a backward pass."""
    told, over = list[tuple[str, bool]](), False
    asked = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM))
    with stop_on_signals(StopFlag(), lambda text: told.append((text, over))):
        asked.start()
        hashlib.pbkdf2_hmac("sha256", b"a", b"b", 4_000_000)  # a second or more
        over = True
    assert told == [(ASKED, False)]


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


def test_sigterm_is_an_interrupt_too_and_the_process_goes_on() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray, which another test may have started, sets its own
    try:
        with pytest.raises(InterruptedRunError, match="saved in some/folder"), resumable("some/folder"):
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
