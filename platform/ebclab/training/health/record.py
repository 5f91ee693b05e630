"""The health of a run over time, as plain values that are saved in every checkpoint and in result.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from ebclab.training.health.findings import READ, FindingRules, find
from ebclab.training.health.policy import WATCHED, Decision, HealthState, make_decision

_WORDS = {
    "lower_step": "lowered the sampler's step",
    "roll_back": "went back",
    "stop": "stopped",
    "recovered": "no longer",
}
_KEPT = tuple(dict.fromkeys((*WATCHED, *READ)))


@dataclass
class HealthRecord:
    """Everything that findings and decisions on a run's health depend on."""

    state: HealthState = field(default_factory=HealthState)  # state left by earlier decisions
    series: list[dict[str, float]] = field(default_factory=list)  # means of the metrics of every epoch
    current: list[dict[str, float]] = field(default_factory=list)  # log records of the epoch that has not ended
    step_scale: float = 1.0  # product of all factors that the sampler's step was multiplied by
    # every decision other than ``continue`` and every finding, oldest first; going back removes none
    events: list[dict[str, Any]] = field(default_factory=list)
    healthy: bool = True  # the last epoch showed no sign of trouble of a sampler
    # norm of all weights before the first step; None if an older version saved the record
    start_norm: float | None = None

    @classmethod
    def of_state(cls, state: Mapping[str, Any] | None) -> HealthRecord:
        """Return the record that the state of a checkpoint has as plain values; an empty one if it has none."""
        plain = (state or {}).get("health")
        return cls(**{**plain, "state": HealthState(**plain["state"])}) if plain else cls()

    def add(self, metrics: Mapping[str, float]) -> None:
        """Add the watched metrics of one log record to the current epoch."""
        self.current.append({name: metrics[name] for name in _KEPT if name in metrics})

    def close_epoch(self, *, decides: bool) -> Decision:
        """Add the epoch's means to the series and decide on them; one that does not decide continues."""
        names = [name for name in _KEPT if any(name in metrics for metrics in self.current)]
        self.series.append({name: fmean(m[name] for m in self.current if name in m) for name in names})
        self.current = []
        if not decides:
            return Decision("continue", "", healthy=True)
        decision = make_decision(self.series, self.state)
        self.healthy = decision.healthy
        return decision

    def examine(
        self, step: int, measured: Mapping[str, float], rules: FindingRules, *, stops: bool
    ) -> list[dict[str, Any]]:
        """Add the epoch's other numbers to the series, and an event for each finding that is new or past; return these.

        A finding is past when no epoch has shown it for as long as it had to last.
        """
        if not self.series:
            return []
        self.series[-1] |= measured
        if step < rules.first_step:
            return []
        epochs = dict(enumerate(self.series, 1))
        told, before = open_findings(self.events), len(self.events)
        found = dict(find(epochs, rules))
        for kind, text in found.items():
            if kind not in told:
                self._tell(step, "stop" if stops else "warn", kind, text)
        for past in told.keys() - found.keys():
            earlier = [dict(list(epochs.items())[:-back]) for back in range(1, rules.patience)]
            if not any(past in dict(find(part, rules)) for part in earlier):
                self._tell(step, "recovered", past, past)
        return self.events[before:]

    def _tell(self, step: int, action: str, finding: str, reason: str) -> None:
        self.events.append({"step": step, "action": action, "finding": finding, "reason": reason, "acted": True})

    def forget_since(self, earlier: HealthRecord) -> None:
        """Forget the measurements since ``earlier`` and take its step scale; decisions stay."""
        self.series, self.current, self.healthy = earlier.series, earlier.current, True
        self.step_scale = earlier.step_scale

    def add_event(self, decision: Decision, step: int, **consequences: Any) -> dict[str, Any]:
        """Add an event and return it; what was done is told by ``acted``, ``to_step`` and ``step_scale``."""
        event = {"step": step, "action": decision.kind, "reason": decision.reason, **consequences}
        self.events.append(event)
        return event


def open_findings(events: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return what the events of a run say is still wrong with it: the text of each kind of finding."""
    found: dict[str, str] = {}
    for event in events:
        reason = str(event.get("reason", ""))
        would_act = not event.get("acted") and reason.startswith("collapsed: ")  # while a sampler is only watched
        kind = str(event.get("finding", "collapsed" if would_act else ""))
        if event.get("action") == "recovered":
            found.pop(kind, None)
        elif kind:
            found[kind] = reason
    return found


def in_words(event: Mapping[str, Any]) -> str:
    """Return an event as a line of text."""
    if event["action"] == "warn":
        return f"health, step {event['step']}: {event['reason']}"
    done = _WORDS.get(str(event["action"]), "") if event["acted"] else f"only watching, else: {event['action']}"
    if "to_step" in event:
        done += f" to step {event['to_step']}"
    scale = f"; the sampler's step is now {event['step_scale']:.3g} times its setting" if "step_scale" in event else ""
    return f"health, step {event['step']}: {done}: {event['reason']}{scale}"
