"""Decides, from plain values, whether a run with a sampler is healthy, and what to do if it is not.

Decisions read the mean of each logged metric over every epoch. These are the same on every rank, and so are decisions.
The record of a run's health over time is saved in every checkpoint and in result.json.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any, Literal, NamedTuple

from ebclab.training.health.findings import (
    COLLAPSE_EPOCHS,
    COLLAPSES,
    ENERGIES,
    FIRST_EPOCHS,
    MAX_ENERGY_RATIO,
    MIN_EFFECTIVE_RANK,
    MIN_SPREAD,
    READ,
    FindingRules,
    collapses,
    energy_scale,
    epochs_below,
    find,
)

Kind = Literal["continue", "lower_step", "roll_back", "stop"]
Series = Sequence[Mapping[str, float]]
"""Metrics of every epoch since the run began, oldest first; each may lack any of them."""

_MOVEMENTS = ("chain_movement", "bank_movement")
WATCHED = ("loss", *ENERGIES, "chain_saturation", "chain_gradient_norm", *_MOVEMENTS, *COLLAPSES)
"""The metrics that decisions read."""

# Above the first number of a pair a run is strange, above the second it is unhealthy.
_ENERGY_RATIOS = (10.0, MAX_ENERGY_RATIO)  # energies, as multiples of their scale in the first epochs
_SATURATIONS = (0.5, 0.9)  # share of the chains' pixels beyond black or white
_GRADIENT_RATIOS = (30.0, 300.0)  # norm of the chains' gradient, as a multiple of its median over the epochs before
_MIN_REFERENCE = 3  # epochs behind a median worth comparing with
_MAX_REFERENCE = 10

_MIN_MOVEMENT = 1e-4  # chains or a bank that move less in a step are frozen; pixel values or radians
_STRANGE_EPOCHS = 2  # epochs that something strange must last before the step is lowered
COOL_DOWN_EPOCHS = 2
"""Epochs without a decision after each decision."""
MAX_LOWERED = 4
"""How often the step may be lowered without going back."""
MAX_ROLLED_BACK = 3
"""How often a run may go back before it stops."""
LOWER_FACTOR, ROLL_BACK_FACTOR = 0.5, 0.25
"""Factors of the step when it is lowered, and when the run goes back."""


@dataclass(frozen=True)
class HealthState:
    """What later decisions must know about earlier ones."""

    waiting: int = 0  # epochs left of the cool-down
    lowered: int = 0  # how often the step was lowered without going back
    rolled_back: int = 0  # how often the run went back

    def after(self, kind: Kind) -> HealthState:
        """Return the state after a decision."""
        match kind:
            case "lower_step":
                return replace(self, waiting=COOL_DOWN_EPOCHS, lowered=self.lowered + 1)
            case "roll_back":
                return replace(self, waiting=COOL_DOWN_EPOCHS, rolled_back=self.rolled_back + 1)
            case _:
                return replace(self, waiting=max(0, self.waiting - 1))


class Decision(NamedTuple):
    """What to do after an epoch."""

    kind: Kind  # the action
    reason: str  # why, with numbers; empty for ``continue``
    healthy: bool  # the epoch showed no sign of trouble, so that a later rollback may return to its end


class _Sign(NamedTuple):
    """A sign of trouble in the newest epoch."""

    # ``unhealthy``: go back; ``frozen``: stop; ``strange``: lower the step if it lasts; ``early``: wait
    severity: Literal["early", "strange", "unhealthy", "frozen"]
    name: str  # the metric
    text: str  # the sign with its numbers


def make_decision(series: Series, state: HealthState) -> Decision:
    """Decide on the newest epoch of ``series``.

    An unhealthy run goes back to its newest healthy checkpoint with a smaller step. A run that is strange for some
    epochs continues with a smaller step. A run that has gone back too often, or never moved, stops. Numbers that are
    not finite are acted on during the cool-down too.
    """
    signs = list(_signs(series))
    lost = [f"{name} is {value}" for name, value in (series[-1] if series else {}).items() if not math.isfinite(value)]
    if lost:
        return roll_back_or_stop(", ".join(lost), state)
    if state.waiting or not signs:
        return Decision("continue", "", not signs)
    for sign in signs:
        if sign.severity == "frozen":
            return Decision("stop", sign.text, healthy=False)
        if sign.severity == "unhealthy":
            return roll_back_or_stop(sign.text, state)
    strange = [sign for sign in signs if sign.severity == "strange" and _lasts(sign, series)]
    if strange and state.lowered < MAX_LOWERED:
        return Decision("lower_step", f"{strange[0].text} for {_STRANGE_EPOCHS} epochs", healthy=False)
    return Decision("continue", "", healthy=False)


def roll_back_or_stop(reason: str, state: HealthState) -> Decision:
    """Return the decision about an unhealthy run: go back, or stop if it has gone back too often."""
    if state.rolled_back < MAX_ROLLED_BACK:
        return Decision("roll_back", reason, healthy=False)
    return Decision("stop", f"{reason}, after going back {state.rolled_back} times", healthy=False)


def _signs(series: Series) -> Iterator[_Sign]:
    """Yield every sign of trouble in the newest epoch, the most severe of each metric."""
    if not series:
        return
    newest = series[-1]
    for name in ENERGIES:
        scale = energy_scale(_curve(series[:FIRST_EPOCHS], name))
        if name in newest:
            ratio = abs(newest[name]) / scale
            yield from _above(name, ratio, _ENERGY_RATIOS, f"{newest[name]:.3g}", f"times the start's {scale:.3g}")
    if "chain_saturation" in newest:
        share = newest["chain_saturation"]
        yield from _above("chain_saturation", share, _SATURATIONS, f"{share:.2f}", "of all pixels")
    before = _curve(series[:-1], "chain_gradient_norm")[-_MAX_REFERENCE:]
    if "chain_gradient_norm" in newest and len(before) >= _MIN_REFERENCE and (usual := median(before)) > 0:
        norm = newest["chain_gradient_norm"]
        where = f"times the usual {usual:.3g}"
        yield from _above("chain_gradient_norm", norm / usual, _GRADIENT_RATIOS, f"{norm:.3g}", where)
    yield from _collapse(series)
    yield from _standstill(series)


def _above(name: str, value: float, bounds: tuple[float, float], shown: str, unit: str) -> Iterator[_Sign]:
    strange, unhealthy = bounds
    if value > unhealthy:
        yield _Sign("unhealthy", name, f"{name} {shown}, above {unhealthy:g} {unit}")
    elif value > strange:
        yield _Sign("strange", name, f"{name} {shown}, above {strange:g} {unit}")


def _collapse(series: Series) -> Iterator[_Sign]:
    """Yield a sign for a metric that has fallen below its bound; one that was never above the bound gives none."""
    for found in collapses(dict(enumerate(series, 1)), MIN_EFFECTIVE_RANK, MIN_SPREAD):
        if found.was_above:
            severity: Literal["unhealthy", "early"] = "unhealthy" if found.epochs >= COLLAPSE_EPOCHS else "early"
            yield _Sign(severity, found.name, found.text)


def _standstill(series: Series) -> Iterator[_Sign]:
    """Yield a sign for chains or a bank that do not move; "frozen" if they never did, since going back cannot help."""
    for name in _MOVEMENTS:
        curve = _curve(series, name)
        below = epochs_below(dict(enumerate(curve, 1)), _MIN_MOVEMENT)
        if below:
            severity: Literal["unhealthy", "frozen"] = "frozen" if below == len(curve) else "unhealthy"
            text = f"frozen: {name} {curve[-1]:.3g}, below {_MIN_MOVEMENT:g} for {below} epochs"
            yield _Sign(severity if below >= COLLAPSE_EPOCHS else "early", name, text)


def _lasts(sign: _Sign, series: Series) -> bool:
    """Return whether the same metric was strange, or worse, in every one of the last epochs."""
    earlier = (series[: len(series) - back] for back in range(1, _STRANGE_EPOCHS))
    return all(any(other.name == sign.name for other in _signs(part)) for part in earlier)


def _curve(series: Series, name: str) -> list[float]:
    return [values[name] for values in series if name in values]


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
