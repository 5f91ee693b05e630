"""A progress bar for each task of a command, or lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ebclab.formatting import is_terminal
from ebclab.terminal import console, say

if TYPE_CHECKING:
    from ebclab.evaluation.progress import OnProgress


@contextmanager
def progress_bar() -> Iterator[OnProgress]:
    """Yield a callback (done, total, what) that updates a progress bar per task; prints lines without a terminal."""
    from ebclab.evaluation.progress import ProgressRates, in_lines, in_rate

    if not is_terminal(sys.stderr):
        yield in_lines(lambda line: say(line, err=True))
        return
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    shown = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    columns = (*shown, TextColumn("{task.fields[rate]}"))
    with Progress(*columns, console=console(err=True), transient=True) as progress:
        tasks: dict[str, TaskID] = {}
        rates = ProgressRates()

        def on_progress(done: int, total: int, what: str) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total, rate="")
            rate = rates.seen(done, what, time.monotonic())
            progress.update(
                tasks[what],
                completed=done,
                total=total,
                visible=done < total,
                rate=in_rate(rate) if rate else "",
            )

        yield on_progress
