"""The callback through which long work reports its progress."""

from __future__ import annotations

import time
from collections.abc import Callable

from ebclab.formatting import clock as in_clock

OnProgress = Callable[[int, int, str], None]
"""``on_progress(done, total, what)``: ``done`` of ``total`` units (images, epochs) of ``what`` are finished."""

_LINE_SECONDS = 10.0


def silent(done: int, total: int, what: str) -> None:
    """Ignore progress: the default of every ``on_progress``."""


class ProgressRates:
    """How fast works under way are, from when each was first seen."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[int, float]] = {}
        self._done: dict[str, int] = {}

    def seen(self, done: int, what: str, now: float) -> float:
        """Return the units of ``what`` that a second brings, 0 where that is not known yet.

        Args:
            done: Units that are finished.
            what: The work.
            now: Seconds of a clock that never goes back.
        """
        if done < self._done.get(what, 0):  # the same work for another encoder
            del self._first[what]
        self._done[what] = done
        first, start = self._first.setdefault(what, (done, now))
        return (done - first) / (now - start) if done > first and now > start else 0.0


def in_lines(write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> OnProgress:
    """Return a callback that writes a line every ten seconds, for logs and pipes.

    Args:
        write: Gets the lines.
        clock: Seconds.
    """
    written, rates = clock(), ProgressRates()

    def on_progress(done: int, total: int, what: str) -> None:
        nonlocal written
        now = clock()
        rate = rates.seen(done, what, now)
        if now - written >= _LINE_SECONDS:
            written = now
            left = f", {in_rate(rate)}, {in_clock((total - done) / rate)} left" if rate else ""
            write(f"{what}: {done:,} of {total:,}{left}")

    return on_progress


def in_rate(rate: float) -> str:
    """Return units a second as a person reads them."""
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"
