"""Shows a running sweep: a live table in a terminal that fits its width and height, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ebclab.config.check import as_written
from ebclab.formatting import clock, is_terminal, on_one_line
from ebclab.sweeps.log import State, Trial
from ebclab.terminal import console, write

_DRAW_SECONDS = 0.25
_DRAW_SHARE = 0.1  # of the time: a table of thousands of trials takes a second, in which the sweep does nothing else
_LINE_SECONDS = 10.0
_STATES: tuple[State, ...] = ("finished", "stopped", "diverged", "failed", "interrupted", "running", "waiting")
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


class SweepDisplay:
    """Shows the progress of a sweep; this one shows nothing."""

    def start(self, name: str, objective: str, num_trials: int) -> None:
        """A phase begins, or begins again."""

    def show(self, trials: Sequence[Trial]) -> None:
        """Trials may have changed."""

    def note(self, text: str) -> None:
        """A message for the user."""

    def stop(self) -> None:
        """The phase is over."""


def choose_sweep_display(stream: TextIO | None = None) -> SweepDisplay:
    """Return a live table when ``stream`` (default: standard error) is a terminal, else plain lines."""
    stream = stream or sys.stderr
    screen = console(stream)
    able = is_terminal(stream) and not screen.is_dumb_terminal
    return SweepTableDisplay(screen) if able else SweepLineDisplay(stream)


class _WithProgress(SweepDisplay):
    """A display with the progress of the present phase."""

    _progress: SweepProgress

    def start(self, name: str, objective: str, num_trials: int) -> None:
        self._progress = SweepProgress(objective, num_trials, started=time.monotonic())
        self.note(f"{name}: {num_trials} trials, objective {objective}")


@dataclass
class SweepProgress:
    """How far a sweep has come."""

    objective: str = ""
    num_trials: int = 0  # number of planned trials
    trials: Sequence[Trial] | None = None  # trials proposed so far; None before the first update
    started: float = 0.0  # start of this launch, in seconds of the monotonic clock
    done_before: float = 0.0  # work of earlier launches, in trials

    @property
    def total(self) -> int:
        return max(self.num_trials, len(self.trials or ()))

    @property
    def done(self) -> float:
        """Work done, in trials; an unfinished trial counts by its share of epochs."""
        return sum(1.0 if trial.is_over else trial.epochs_done / trial.epochs for trial in self.trials or ())

    def update(self, trials: Sequence[Trial]) -> None:
        """Update the trials; the first call defines the work of earlier launches."""
        is_first, self.trials = self.trials is None, trials
        if is_first:
            self.done_before = self.done

    def states(self) -> str:
        """Return how many trials are in each state, as text."""
        numbers = Counter(trial.state for trial in self.trials or ())
        numbers["waiting"] += self.total - numbers.total()
        return " · ".join(f"{numbers[state]} {state}" for state in _STATES if numbers[state]) or "no trials"

    def facts(self) -> str:
        """Return the best trial so far, the elapsed time and, once a trial is done, the estimated time left."""
        best = best_trial(self.trials or ())
        parts = [f"best {self.objective} {best.value:.4f} by {best.id}"] if best else []
        elapsed = time.monotonic() - self.started
        parts.append(f"{clock(elapsed)} so far")
        done_now, left = self.done - self.done_before, self.total - self.done
        if done_now >= 1 and left > 0:
            parts.append(f"about {clock(elapsed / done_now * left)} left")
        return on_one_line(" · ".join(parts))


class SweepLineDisplay(_WithProgress):
    """One plain line when a trial starts or ends, and one about the sweep every ten seconds, for logs and pipes."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._known: dict[str, State] = {}
        self._written = 0.0

    def start(self, name: str, objective: str, num_trials: int) -> None:
        super().start(name, objective, num_trials)
        self._written = self._progress.started

    def show(self, trials: Sequence[Trial]) -> None:
        if self._progress.trials is None:  # trials that were over before this launch get no line
            self._known = {trial.id: trial.state for trial in trials if trial.is_over}
        self._progress.update(trials)
        for trial in trials:
            if trial.state != self._known.get(trial.id):
                self._known[trial.id] = trial.state
                self._print_trial(trial)
        now = time.monotonic()
        if now - self._written >= _LINE_SECONDS:
            self._written = now
            self.note(f"{self._progress.states()} · {self._progress.facts()}")

    def note(self, text: str) -> None:
        write(f"{on_one_line(text)}\n", self._stream)

    def _print_trial(self, trial: Trial) -> None:
        done = epochs_of(trial)
        if trial.state == "running":
            names = short_names(list(trial.settings))
            settings = ", ".join(f"{name} {setting_in_words(trial, key)}" for key, name in names.items())
            self.note(f"trial {trial.id} {f'resumes after epoch {done}' if trial.curve else 'starts'}: {settings}")
        elif trial.state != "waiting":
            score = f", {self._progress.objective} {trial.value:.4f}" if trial.curve else ""
            reason = f": {trial.reason}" if trial.reason else ""
            self.note(f"trial {trial.id} {trial.state} after epoch {done}{score}{reason}")


class SweepTableDisplay(_WithProgress):
    """A table under two heading lines, drawn up to four times a second, of large sweeps less often."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._next = 0.0  # when the table may be drawn again

    def start(self, name: str, objective: str, num_trials: int) -> None:
        super().start(name, objective, num_trials)
        self._next = 0.0
        self._live = Live(console=self._console, auto_refresh=False)
        self._live.start()

    def show(self, trials: Sequence[Trial]) -> None:
        self._progress.update(trials)
        if self._live is not None and time.monotonic() >= self._next:
            self._draw(self._live)

    def note(self, text: str) -> None:
        self._console.print(Text(on_one_line(text)))

    def stop(self) -> None:
        """Draw the table a last time and leave it on the screen."""
        if self._live is not None:
            self._draw(self._live)
            self._live.stop()
            self._live = None

    def _draw(self, live: Live) -> None:
        began = time.monotonic()
        progress, trials = self._progress, self._progress.trials or ()
        heading = [Text(line, no_wrap=True, overflow="ellipsis") for line in (progress.states(), progress.facts())]
        height = self._console.height - len(heading) - 1  # one line for the cursor
        table = TrialTable(trials, _by_interest(trials), progress.objective, best_trial(trials), height)
        live.update(Group(*heading, table), refresh=True)
        ended = time.monotonic()
        self._next = ended + max(_DRAW_SECONDS, (ended - began) / _DRAW_SHARE)


def _by_interest(trials: Sequence[Trial]) -> list[Trial]:
    """Return running trials, then those that will continue, finished ones, stopped ones (best first), and the rest."""

    def place(trial: Trial) -> tuple[int, float, int]:
        if not trial.is_over:
            return (0 if trial.state == "running" else 1 if trial.curve else 5, 0.0, trial.number)
        if not counts(trial):
            return (4, 0.0, trial.number)
        return (2 if trial.state == "finished" else 3, -trial.value, trial.number)

    return sorted(trials, key=place)


class _Column(NamedTuple):
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

    def _columns(self, rows: list[Trial], settings: Mapping[str, str], width: int) -> tuple[list[_Column], int]:
        """Return the columns that fit into ``width`` characters, and how many settings do not."""
        first = _Column(["trial"], [("*" if trial is self.best else " ") + trial.id for trial in rows], "left")
        facts = [
            _Column(["epoch"], [epochs_of(trial) for trial in rows]),
            _Column(_stacked(self.objective), [f"{trial.value:.4f}" if trial.curve else "" for trial in rows]),
            _Column(["state"], [trial.state for trial in rows], "left"),
        ]
        reason = _Column(["reason"], [on_one_line(trial.reason) for trial in rows], "left")
        least = min(reason.width, _LEAST_REASON) + _GAP if any(reason.cells) else 0
        room = width - sum(column.width + _GAP for column in (first, *facts)) + _GAP - least
        shown = []
        for key, name in settings.items():
            column = _Column(_stacked(name), [setting_in_words(trial, key) for trial in rows])
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


def _drawn(columns: list[_Column], rows: list[Trial], best: Trial | None) -> Table:
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
