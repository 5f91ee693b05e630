"""A progress bar for each task of a command, or lines where there is no terminal, and the results after it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, cast

from ebclab.errors import UnsavedError
from ebclab.formatting import is_terminal
from ebclab.terminal import console, say

if TYPE_CHECKING:
    from ebclab.card.side_by_side import Cards
    from ebclab.evaluation.progress import OnProgress
    from ebclab.runs.evaluate import Evaluation
    from ebclab.training.samples import Samples

Result = TypeVar("Result", "Cards", "Evaluation", "Samples")


def measured(measure: Callable[[OnProgress], Result], show: Callable[[Result], None], as_json: bool) -> Result:
    """Return what ``measure`` finds, after printing it; what could not be saved is printed before that is raised."""
    unsaved = None
    with progress_bar() as on_progress:
        try:
            result = measure(on_progress)
        except UnsavedError as error:
            result, unsaved = cast("Result", error.result), error
    if as_json:
        say(json.dumps(result.to_mapping(), indent=2))
    else:
        show(result)
    if unsaved is not None:
        raise unsaved
    return result


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
    redirected = is_terminal(sys.stdout)  # else lines of the result would go to stderr while the bar is shown
    with Progress(*columns, console=console(err=True), transient=True, redirect_stdout=redirected) as progress:
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
