"""Progress callback of long-running functions."""

from __future__ import annotations

import time
from collections.abc import Callable

from ebclab.formatting import clock as in_clock

OnProgress = Callable[[int, int, str], None]
"""``on_progress(done, total, what)``: ``done`` of ``total`` units (e.g. images) of the task ``what`` are finished."""

_LINE_SECONDS = 10.0


def silent(done: int, total: int, what: str) -> None:
    """Ignore progress: the default of every ``on_progress``."""


class ProgressRates:
    """Throughput of tasks in progress, measured since the first report of each."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[int, float]] = {}
        self._done: dict[str, int] = {}

    def seen(self, done: int, what: str, now: float) -> float:
        """Record progress and return the throughput of ``what`` in units per second, 0 if not known yet."""
        if done < self._done.get(what, 0):  # the same task for another encoder
            del self._first[what]
        self._done[what] = done
        first, start = self._first.setdefault(what, (done, now))
        return (done - first) / (now - start) if done > first and now > start else 0.0


def in_lines(write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> OnProgress:
    """Return a callback that writes at most one line every ten seconds, for logs and pipes."""
    written, rates = clock(), ProgressRates()

    def on_progress(done: int, total: int, what: str) -> None:
        nonlocal written
        now = clock()
        rate = rates.seen(done, what, now)
        if now - written >= _LINE_SECONDS:
            written = now
            left = f", {in_rate(rate)}, {in_clock((total - done) / rate)} left" if rate else ""
            one = "done" if done else "running"  # work that is not counted in parts
            write(f"{what}: {one}" if total == 1 else f"{what}: {done:,} of {total:,}{left}")

    return on_progress


def in_rate(rate: float) -> str:
    """Return a throughput in units per second as text."""
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"
