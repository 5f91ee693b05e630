"""A trial of a sweep as plain values, the same in a running sweep and when read from the log."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from ebclab.evaluation.answers import Answers
from ebclab.sweeps.space.space import Point, Settings

Kind = Literal["search", "confirm"]
State = Literal["waiting", "running", "finished", "stopped", "diverged", "failed", "interrupted"]
OVER: tuple[State, ...] = ("finished", "stopped", "diverged", "failed")
"""A trial in one of these states is never trained again; a resumed sweep continues all others."""
LOST: tuple[State, ...] = ("diverged", "failed")
"""Trials in these states do not count as measurements of their settings, whatever they measured before."""


@dataclass(frozen=True)
class Epoch:
    """Measurements of a trial after one of its epochs."""

    objective: float  # value that the sweep maximises, measured on held-out training images
    seconds: float  # training time of the trial up to this epoch
    metrics: dict[str, float] = field(default_factory=dict)  # all other measurements: scores, losses, diagnostics
    place: int = 0  # number of measurements of the sweep that were logged before it


@dataclass
class Trial:
    """One set of settings, and how far its training has come."""

    id: str  # name of the trial, such as 0007 or confirm-0001-seed2
    kind: Kind  # "search" looks for settings, "confirm" runs good ones again at full budget with other seeds
    number: int  # position in the order of proposals; for a confirming trial, the rank of its settings
    point: Point  # empty for a confirming trial
    settings: Settings
    seed: int  # seed of the run
    epochs: int  # budget
    state: State = "waiting"
    reason: str = ""  # why it ended before its budget, or what went wrong
    curve: dict[int, Epoch] = field(default_factory=dict)  # measurements by epochs done
    generation: int = 0  # how often the trial copied another trial's weights (population based training)
    exchanged: int = 0  # epoch of the newest exchange decision that the trial continued from; 0 before the first
    seconds: float = 0.0  # training time so far
    # the sum over launches of training time times the GPUs, or the share of one, that the trial had
    gpu_seconds: float = 0.0
    # which held-out images a confirming trial classifies correctly; None if not recorded
    answers: Answers | None = None

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def is_lost(self) -> bool:
        return self.state in LOST

    @property
    def epochs_done(self) -> int:
        """The newest epoch with a measurement; 0 before the first."""
        return max(self.curve, default=0)

    @property
    def last(self) -> Epoch | None:
        """The newest measurement; None before the first."""
        return self.curve[self.epochs_done] if self.curve else None

    @property
    def value(self) -> float:
        """The newest objective; nan before the first."""
        return self.last.objective if self.last else math.nan

    @property
    def objectives(self) -> dict[int, float]:
        return {epoch: point.objective for epoch, point in sorted(self.curve.items())}

    def objectives_by(self, place: int) -> dict[int, float]:
        """Return the objective by epochs done, of measurements at most at ``place`` in the log."""
        return {epoch: point.objective for epoch, point in sorted(self.curve.items()) if point.place <= place}

    @property
    def run_name(self) -> str:
        """Name of the trial's run folder; a trial that copies another one's weights gets a new one."""
        return self.id if self.generation == 0 else f"{self.id}-g{self.generation}"

    def spend(self, seconds: float, gpus: float) -> None:
        """Take the training time so far, of which the part that is new had so many GPUs."""
        self.gpu_seconds += (seconds - self.seconds) * gpus
        self.seconds = seconds
