"""Waits for what another process, thread or machine does, with a limit that only a hang meets."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], seconds: float = 600.0, what: str = "", pause: float = 0.01) -> None:
    """Ask again and again, until the condition holds; fail after so many seconds."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, what
        time.sleep(pause)
