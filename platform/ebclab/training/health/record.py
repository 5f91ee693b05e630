"""What a run knows of its health, as plain values that are saved with every checkpoint and told in the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from ebclab.training.health.policy import WATCHED, Decision, HealthRules, HealthState, make_decision

_WORDS = {"lower_step": "lowered the sampler's step", "roll_back": "went back", "stop": "stopped"}


@dataclass
class HealthRecord:
    """The past of a run, as far as decisions on its health depend on it.

    Attributes:
        state: What earlier decisions left behind.
        series: Means of the metrics of every epoch.
        current: Log records of the epoch that has not ended.
        step_scale: Product of all factors that the sampler's step was multiplied by.
        events: Every decision but to continue, oldest first; those before a roll-back too.
        healthy: The last epoch showed no sign of illness.
    """

    state: HealthState = field(default_factory=HealthState)
    series: list[dict[str, float]] = field(default_factory=list)
    current: list[dict[str, float]] = field(default_factory=list)
    step_scale: float = 1.0
    events: list[dict[str, Any]] = field(default_factory=list)
    healthy: bool = True

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> HealthRecord:
        """Return what ``to_plain`` was called on."""
        return cls(**{**plain, "state": HealthState(**plain["state"])})

    def to_plain(self) -> dict[str, Any]:
        """Return everything as plain values of its own."""
        return asdict(self)

    def add(self, metrics: Mapping[str, float]) -> None:
        """Remember what matters of one log record."""
        self.current.append({name: metrics[name] for name in WATCHED if name in metrics})

    def close_epoch(self, rules: HealthRules) -> Decision:
        """Take the epoch's mean into the series and decide on it."""
        names = [name for name in WATCHED if any(name in metrics for metrics in self.current)]
        self.series.append({name: fmean(m[name] for m in self.current if name in m) for name in names})
        self.current = []
        decision = make_decision(self.series, rules, self.state)
        self.healthy = decision.healthy
        return decision

    def go_back(self, earlier: HealthRecord) -> None:
        """Forget what was measured since ``earlier``; what was decided is remembered, the scale is ``earlier``'s."""
        self.series, self.current, self.healthy = earlier.series, earlier.current, True
        self.step_scale = earlier.step_scale

    def tell(self, decision: Decision, step: int, **consequences: Any) -> dict[str, Any]:
        """Add an event and return it.

        Args:
            decision: What was decided.
            step: At which optimizer step.
            consequences: ``to_step`` and ``step_scale``, as far as something was done.
        """
        event = {"step": step, "action": decision.kind, "reason": decision.reason, **consequences}
        self.events.append(event)
        return event


def in_words(event: Mapping[str, Any]) -> str:
    """Return an event as a line for people."""
    done = _WORDS[event["action"]] if event["acted"] else f"only watching, else: {event['action']}"
    if "to_step" in event:
        done += f" to step {event['to_step']}"
    scale = f"; the sampler's step is now {event['step_scale']:.3g} times its setting" if "step_scale" in event else ""
    return f"health, step {event['step']}: {done}: {event['reason']}{scale}"
