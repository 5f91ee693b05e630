"""The first signal asks, the second acts, and afterwards everything is as before."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from ebclab.training.interrupt import StopFlag, stop_on_signals


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
    flag = StopFlag()
    with stop_on_signals(flag):
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


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
