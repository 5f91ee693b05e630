"""Progress of the probes on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ebclab.evaluation.progress import OnProgress


@contextmanager
def probe_progress() -> Iterator[OnProgress]:
    """Yield a callback (done, total, what) that moves one bar a task, and does nothing where nobody looks."""
    from ebclab.evaluation.progress import silent

    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID

    with Progress(console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def on_progress(done: int, total: int, what: str) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield on_progress
