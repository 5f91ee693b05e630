"""A table of trials that fits the width and height of the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.table import Table
from rich.text import Text

from ebclab.config.check import as_written
from ebclab.formatting import on_one_line
from ebclab.sweeps.trial import State, Trial

_GAP = 2  # characters between columns
_WIDEST_WORD = 8  # characters of a header's line
_LEAST_REASON = 20  # characters that a reason keeps when there are many settings
_STYLES: Mapping[State, str] = {
    "running": "cyan",
    "finished": "green",
    "stopped": "yellow",
    "diverged": "red",
    "failed": "red",
    "waiting": "dim",
}


class Column(NamedTuple):
    """A column before it is drawn: the lines of its header, and one text per row."""

    header: list[str]
    cells: list[str]
    justify: JustifyMethod = "right"

    @property
    def width(self) -> int:
        return max(map(cell_len, [*self.header, *self.cells]))


@dataclass(frozen=True)
class TrialTable:
    """A table for rich to print: trial, varying settings (as many as fit), epoch, objective, state, reason."""

    trials: Sequence[Trial]  # all trials; settings with the same value in all of them are not shown
    rows: Sequence[Trial]  # the trials to show, in order
    objective: str  # name of the objective
    best: Trial | None = None  # the trial to mark, which is shown even if not all rows fit; None marks no trial
    height: int | None = None  # largest number of lines; None means no limit

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the table and, below it, a line about what did not fit."""
        settings = varying_settings(self.trials)
        header_lines = max(len(_stacked(name)) for name in (self.objective, *settings.values()))
        rows = list(self.rows) if self.height is None else self._fitting_rows(self.height - header_lines - 1)
        columns, num_hidden = self._columns(rows, settings, options.max_width)
        yield _drawn(columns, rows, self.best)
        more = [(len(self.rows) - len(rows), "trials"), (num_hidden, "settings")]
        if text := ", ".join(f"{count} more {what if count > 1 else what[:-1]}" for count, what in more if count):
            yield Text(f"… {text}", style="dim", no_wrap=True, overflow="ellipsis")

    def _fitting_rows(self, room: int) -> list[Trial]:
        rows = list(self.rows[: max(room, 1)])
        if self.best is not None and self.best.id in {trial.id for trial in self.rows[len(rows) :]}:
            rows[-1] = self.best
        return rows

    def _columns(self, rows: list[Trial], settings: Mapping[str, str], width: int) -> tuple[list[Column], int]:
        """Return the columns that fit into ``width`` characters, and how many settings do not."""
        first = Column(["trial"], [("*" if trial is self.best else " ") + trial.id for trial in rows], "left")
        facts = [
            Column(["epoch"], [epochs_of(trial) for trial in rows]),
            Column(_stacked(self.objective), [f"{trial.value:.4f}" if trial.curve else "" for trial in rows]),
            Column(["state"], [trial.state for trial in rows], "left"),
        ]
        reason = Column(["reason"], [on_one_line(trial.reason) for trial in rows], "left")
        least = min(reason.width, _LEAST_REASON) + _GAP if any(reason.cells) else 0
        room = width - sum(column.width + _GAP for column in (first, *facts)) + _GAP - least
        shown = []
        for key, name in settings.items():
            column = Column(_stacked(name), [setting_in_words(trial, key) for trial in rows])
            if column.width + _GAP <= room:
                shown.append(column)
                room -= column.width + _GAP
        return [first, *shown, *facts, *([reason] if least else [])], len(settings) - len(shown)


def best_trial(trials: Iterable[Trial]) -> Trial | None:
    """Return the search trial with the highest objective among finished ones, or among all while none has finished."""
    able = (trial for trial in trials if trial.kind == "search" and counts(trial))
    return max(able, key=lambda trial: (trial.state == "finished", trial.value), default=None)


def counts(trial: Trial) -> bool:
    """Return whether a trial may be the best: it has a finite value and neither diverged nor failed."""
    return bool(trial.curve) and math.isfinite(trial.value) and not trial.is_lost


def epochs_of(trial: Trial) -> str:
    """Return epochs done and the budget: ``3/10``."""
    return f"{trial.epochs_done}/{trial.epochs}"


def varying_settings(trials: Sequence[Trial]) -> dict[str, str]:
    """Return the settings in which trials differ, by dotted key with a short name; all settings when none differ."""
    keys = list(dict.fromkeys(key for trial in trials for key in trial.settings))
    differing = [key for key in keys if len({setting_in_words(trial, key) for trial in trials}) > 1]
    return short_names(differing or keys)


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return the last part of each dotted key, or the whole key if two have the same last part."""
    lasts = [key.rpartition(".")[2] for key in keys]
    return {key: on_one_line(last if lasts.count(last) == 1 else key) for key, last in zip(keys, lasts, strict=True)}


def setting_in_words(trial: Trial, key: str) -> str:
    """Return a setting of a trial on one line, with three digits; empty if the trial has none of this name."""
    value = trial.settings.get(key, "")
    if isinstance(value, float):
        return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"
    return on_one_line(as_written(value))


def _stacked(name: str) -> list[str]:
    """Return a name as header lines, one word each; long words are cut in two."""
    lines = []
    for word in on_one_line(name).replace(".", ". ").replace("_", " ").split():
        half = (len(word) + 1) // 2
        lines += [word] if len(word) <= _WIDEST_WORD else [f"{word[:half]}-", word[half:]]
    return lines


def _drawn(columns: list[Column], rows: list[Trial], best: Trial | None) -> Table:
    """Return the columns as a table of rich; the last one is cut where the line ends."""
    titles = [column.header[0] for column in columns]
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    for column, title in zip(columns, titles, strict=True):
        table.add_column(
            Text("\n".join(column.header)),
            justify=column.justify,
            vertical="bottom",
            no_wrap=title != "reason",  # rich narrows the other columns
            width=None if title == "reason" else column.width,
        )
    for place, trial in enumerate(rows):
        cells = [Text(column.cells[place], no_wrap=True, overflow="ellipsis") for column in columns]
        cells[titles.index("state")].stylize(_STYLES.get(trial.state, ""))
        table.add_row(*cells, style="bold" if trial is best else "")
    return table
