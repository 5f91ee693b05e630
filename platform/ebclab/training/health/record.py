"""The health of a run over time, as plain values that are saved in every checkpoint and in result.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from ebclab.training.health.policy import WATCHED, Decision, HealthRules, HealthState, make_decision

_WORDS = {"lower_step": "lowered the sampler's step", "roll_back": "went back", "stop": "stopped"}


@dataclass
class HealthRecord:
    """Everything that decisions on a run's health depend on.

    Attributes:
        state: State left by earlier decisions.
        series: Means of the metrics of every epoch.
        current: Log records of the epoch that has not ended.
        step_scale: Product of all factors that the sampler's step was multiplied by.
        events: Every decision other than ``continue``, oldest first; going back removes none.
        healthy: The last epoch showed no sign of trouble.
    """

    state: HealthState = field(default_factory=HealthState)
    series: list[dict[str, float]] = field(default_factory=list)
    current: list[dict[str, float]] = field(default_factory=list)
    step_scale: float = 1.0
    events: list[dict[str, Any]] = field(default_factory=list)
    healthy: bool = True

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> HealthRecord:
        """Return the record that ``to_plain`` turned into ``plain``."""
        return cls(**{**plain, "state": HealthState(**plain["state"])})

    def to_plain(self) -> dict[str, Any]:
        """Return a copy as plain values."""
        return asdict(self)

    def add(self, metrics: Mapping[str, float]) -> None:
        """Add the watched metrics of one log record to the current epoch."""
        self.current.append({name: metrics[name] for name in WATCHED if name in metrics})

    def close_epoch(self, rules: HealthRules) -> Decision:
        """Add the epoch's means to the series and decide on them."""
        names = [name for name in WATCHED if any(name in metrics for metrics in self.current)]
        self.series.append({name: fmean(m[name] for m in self.current if name in m) for name in names})
        self.current = []
        decision = make_decision(self.series, rules, self.state)
        self.healthy = decision.healthy
        return decision

    def forget_since(self, earlier: HealthRecord) -> None:
        """Forget the measurements since ``earlier`` and take its step scale; decisions stay."""
        self.series, self.current, self.healthy = earlier.series, earlier.current, True
        self.step_scale = earlier.step_scale

    def add_event(self, decision: Decision, step: int, **consequences: Any) -> dict[str, Any]:
        """Add an event and return it.

        Args:
            decision: The decision.
            step: The optimizer step at which it was made.
            consequences: ``acted``, and if something was done ``to_step`` and ``step_scale``.
        """
        event = {"step": step, "action": decision.kind, "reason": decision.reason, **consequences}
        self.events.append(event)
        return event


def in_words(event: Mapping[str, Any]) -> str:
    """Return an event as a line of text."""
    done = _WORDS[event["action"]] if event["acted"] else f"only watching, else: {event['action']}"
    if "to_step" in event:
        done += f" to step {event['to_step']}"
    scale = f"; the sampler's step is now {event['step_scale']:.3g} times its setting" if "step_scale" in event else ""
    return f"health, step {event['step']}: {done}: {event['reason']}{scale}"
