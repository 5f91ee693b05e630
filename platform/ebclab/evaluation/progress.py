"""The callback through which long work reports its progress."""

from __future__ import annotations

import time
from collections.abc import Callable

OnProgress = Callable[[int, int, str], None]
"""``on_progress(done, total, what)``: ``done`` of ``total`` units (images, epochs) of ``what`` are finished."""

_LINE_SECONDS = 10.0


def silent(done: int, total: int, what: str) -> None:
    """Ignore progress: the default of every ``on_progress``."""


def in_lines(write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> OnProgress:
    """Return a callback that writes a line every ten seconds, for logs and pipes.

    Args:
        write: Gets the lines.
        clock: Seconds.
    """
    written = clock()

    def on_progress(done: int, total: int, what: str) -> None:
        nonlocal written
        if (now := clock()) - written >= _LINE_SECONDS:
            written = now
            write(f"{what}: {done:,} of {total:,}")

    return on_progress
