"""The callback through which long work reports its progress."""

from __future__ import annotations

from collections.abc import Callable

OnProgress = Callable[[int, int, str], None]
"""``on_progress(done, total, what)``: ``done`` of ``total`` units (images, epochs) of ``what`` are finished."""


def silent(done: int, total: int, what: str) -> None:
    """Ignore progress: the default of every ``on_progress``."""
