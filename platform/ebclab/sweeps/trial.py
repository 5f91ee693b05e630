"""One trial as the sweep knows it: plain values, the same from a living sweep and from its log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["search", "confirm"]
State = Literal["waiting", "running", "finished", "stopped", "diverged", "failed", "interrupted"]
OVER: tuple[State, ...] = ("finished", "stopped", "diverged", "failed")
"""A trial in one of these states is never run again; every other is, when the sweep is resumed."""


@dataclass(frozen=True)
class Epoch:
    """What a trial told after one of its epochs.

    Attributes:
        objective: Value that the sweep maximises, measured on held-out training images.
        seconds: Training time of the trial until then.
        metrics: Everything else that was measured: scores, losses, diagnostics.
    """

    objective: float
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class Trial:
    """One set of settings and how far it has come.

    Attributes:
        id: Its name and the name of its run folder, such as 0007 or confirm-1-seed2.
        kind: "search" looks for settings, "confirm" runs good ones again at full budget with other seeds.
        number: Place in the order of proposals; of a confirming trial, the rank of its settings.
        point: The searcher's own coordinates: one value a parameter, before derived ones are worked out.
        settings: Value of every searched setting by dotted key.
        seed: Seed of the run.
        epochs: Budget.
        state: Where it stands.
        reason: Why it ended before its budget, or what went wrong.
        curve: What was measured, by epochs done.
        generation: How often it went on from another trial's weights (population based training).
        exchanged: Epoch after which it was last decided whose weights it goes on from.
        seconds: Training time so far.
    """

    id: str
    kind: Kind
    number: int
    point: dict[str, Any]
    settings: dict[str, Any]
    seed: int
    epochs: int
    state: State = "waiting"
    reason: str = ""
    curve: dict[int, Epoch] = field(default_factory=dict)
    generation: int = 0
    exchanged: int = 0
    seconds: float = 0.0

    @property
    def is_over(self) -> bool:
        """The trial will not be run again."""
        return self.state in OVER

    @property
    def epochs_done(self) -> int:
        """Epochs of which a measurement exists."""
        return max(self.curve, default=0)

    @property
    def last(self) -> Epoch | None:
        """The newest measurement."""
        return self.curve[self.epochs_done] if self.curve else None

    @property
    def objectives(self) -> dict[int, float]:
        """The objective by epochs done."""
        return {epoch: point.objective for epoch, point in sorted(self.curve.items())}

    @property
    def run_name(self) -> str:
        """Name of the folder of its present run: each time it goes on from another trial's weights, a new one."""
        return self.id if self.generation == 0 else f"{self.id}-g{self.generation}"
