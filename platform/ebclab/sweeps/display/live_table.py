"""Shows a running sweep: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ebclab.formatting import clock, is_terminal, on_one_line
from ebclab.sweeps.display.trial_table import (
    TrialTable,
    best_trial,
    counts,
    epochs_of,
    setting_in_words,
    short_names,
)
from ebclab.sweeps.trial import State, Trial
from ebclab.terminal import console, write

_DRAW_SECONDS = 0.25
_LINE_SECONDS = 10.0
_STATES: tuple[State, ...] = ("finished", "stopped", "diverged", "failed", "interrupted", "running", "waiting")


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


@dataclass
class SweepProgress:
    """How far a sweep has come."""

    name: str = ""
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


class SweepLineDisplay(SweepDisplay):
    """One plain line when a trial starts or ends, and one about the sweep every ten seconds, for logs and pipes."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._progress = SweepProgress()
        self._known: dict[str, State] = {}
        self._written = 0.0

    def start(self, name: str, objective: str, num_trials: int) -> None:
        self._progress = SweepProgress(name, objective, num_trials, started=time.monotonic())
        self._written = self._progress.started
        self.note(_opening(self._progress))

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


class SweepTableDisplay(SweepDisplay):
    """A table under two heading lines, drawn up to four times a second."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._progress = SweepProgress()
        self._drawn = 0.0

    def start(self, name: str, objective: str, num_trials: int) -> None:
        self._progress = SweepProgress(name, objective, num_trials, started=time.monotonic())
        self._drawn = 0.0
        self.note(_opening(self._progress))
        self._live = Live(console=self._console, auto_refresh=False)
        self._live.start()

    def show(self, trials: Sequence[Trial]) -> None:
        self._progress.update(trials)
        if self._live is not None and time.monotonic() - self._drawn >= _DRAW_SECONDS:
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
        self._drawn = time.monotonic()
        progress, trials = self._progress, self._progress.trials or ()
        heading = [Text(line, no_wrap=True, overflow="ellipsis") for line in (progress.states(), progress.facts())]
        height = self._console.height - len(heading) - 1  # one line for the cursor
        table = TrialTable(trials, _by_interest(trials), progress.objective, best_trial(trials), height)
        live.update(Group(*heading, table), refresh=True)


def _opening(progress: SweepProgress) -> str:
    return f"{progress.name}: {progress.num_trials} trials, objective {progress.objective}"


def _by_interest(trials: Sequence[Trial]) -> list[Trial]:
    """Return running trials, then those that will continue, finished ones, stopped ones (best first), and the rest."""

    def place(trial: Trial) -> tuple[int, float, int]:
        if not trial.is_over:
            return (0 if trial.state == "running" else 1 if trial.curve else 5, 0.0, trial.number)
        if not counts(trial):
            return (4, 0.0, trial.number)
        return (2 if trial.state == "finished" else 3, -trial.value, trial.number)

    return sorted(trials, key=place)
