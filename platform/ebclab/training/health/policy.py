"""Decides, from plain values, whether a run with a sampler is healthy, and what to do if it is not.

Decisions read the mean of each logged metric over every epoch. These are the same on every rank, and so are decisions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, NamedTuple

from ebclab.training.health.findings import collapses, epochs_below
from ebclab.training.health.thresholds import (
    COLLAPSE_EPOCHS,
    COLLAPSES,
    ENERGIES,
    FIRST_EPOCHS,
    MAX_ENERGY_RATIO,
    MIN_EFFECTIVE_RANK,
    MIN_SPREAD,
    energy_scale,
)

Kind = Literal["continue", "lower_step", "roll_back", "stop"]
Series = Sequence[Mapping[str, float]]
"""Metrics of every epoch since the run began, oldest first; each may lack any of them."""

_MOVEMENTS = ("chain_movement", "bank_movement")
WATCHED = ("loss", *ENERGIES, "chain_saturation", "chain_gradient_norm", *_MOVEMENTS, *COLLAPSES)
"""The metrics that decisions read."""

_MIN_REFERENCE = 3  # epochs behind a median worth comparing with
_MAX_REFERENCE = 10


@dataclass(frozen=True)
class HealthRules:
    """Thresholds of health. Above the first number of a pair a run is strange, above the second it is unhealthy."""

    # energies, as multiples of the largest in the first two epochs (at least 1 nat)
    energy_ratios: tuple[float, float] = (10.0, MAX_ENERGY_RATIO)
    saturations: tuple[float, float] = (0.5, 0.9)  # share of the chains' pixels beyond black or white
    # norm of the chains' gradient, as a multiple of its median over the ten epochs before
    gradient_ratios: tuple[float, float] = (30.0, 300.0)
    # an encoder that falls below it has collapsed: it maps all images to nearly one point; dimensions
    min_effective_rank: float = MIN_EFFECTIVE_RANK
    min_spread: float = MIN_SPREAD  # the same for ``embedding_spread``
    min_movement: float = 1e-4  # chains or a bank that move less in a step are frozen; pixel values or radians
    patience_epochs: int = COLLAPSE_EPOCHS  # epochs that a collapse or a standstill must last before the run goes back
    strange_epochs: int = 2  # epochs that something strange must last before the step is lowered
    cool_down_epochs: int = 2  # epochs without a decision after each decision
    max_lowered: int = 4  # how often the step may be lowered without going back
    max_rolled_back: int = 3  # how often a run may go back before it stops
    lower_factor: float = 0.5  # factor of the step when it is lowered
    roll_back_factor: float = 0.25  # factor of the step when the run goes back


@dataclass(frozen=True)
class HealthState:
    """What later decisions must know about earlier ones."""

    waiting: int = 0  # epochs left of the cool-down
    lowered: int = 0  # how often the step was lowered without going back
    rolled_back: int = 0  # how often the run went back

    def after(self, kind: Kind, rules: HealthRules) -> HealthState:
        """Return the state after a decision."""
        match kind:
            case "lower_step":
                return replace(self, waiting=rules.cool_down_epochs, lowered=self.lowered + 1)
            case "roll_back":
                return replace(self, waiting=rules.cool_down_epochs, rolled_back=self.rolled_back + 1)
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


def make_decision(series: Series, rules: HealthRules, state: HealthState) -> Decision:
    """Decide on the newest epoch of ``series``.

    An unhealthy run goes back to its newest healthy checkpoint with a smaller step. A run that is strange for some
    epochs continues with a smaller step. A run that has gone back too often, or never moved, stops. Numbers that are
    not finite are acted on during the cool-down too.

    Args:
        series: Means of the logged metrics, by epoch.
        state: State left by earlier decisions.
    """
    signs = list(_signs(series, rules))
    lost = [f"{name} is {value}" for name, value in (series[-1] if series else {}).items() if not math.isfinite(value)]
    if lost:
        return roll_back_or_stop(", ".join(lost), rules, state)
    if state.waiting or not signs:
        return Decision("continue", "", not signs)
    for sign in signs:
        if sign.severity == "frozen":
            return Decision("stop", sign.text, healthy=False)
        if sign.severity == "unhealthy":
            return roll_back_or_stop(sign.text, rules, state)
    strange = [sign for sign in signs if sign.severity == "strange" and _lasts(sign, series, rules)]
    if strange and state.lowered < rules.max_lowered:
        return Decision("lower_step", f"{strange[0].text} for {rules.strange_epochs} epochs", healthy=False)
    return Decision("continue", "", healthy=False)


def roll_back_or_stop(reason: str, rules: HealthRules, state: HealthState) -> Decision:
    """Return the decision about an unhealthy run: go back, or stop if it has gone back too often."""
    if state.rolled_back < rules.max_rolled_back:
        return Decision("roll_back", reason, healthy=False)
    return Decision("stop", f"{reason}, after going back {state.rolled_back} times", healthy=False)


def _signs(series: Series, rules: HealthRules) -> Iterator[_Sign]:
    """Yield every sign of trouble in the newest epoch, the most severe of each metric."""
    if not series:
        return
    newest = series[-1]
    for name in ENERGIES:
        scale = energy_scale(_curve(series[:FIRST_EPOCHS], name))
        if name in newest:
            ratio = abs(newest[name]) / scale
            yield from _above(name, ratio, rules.energy_ratios, f"{newest[name]:.3g}", f"times the start's {scale:.3g}")
    if "chain_saturation" in newest:
        share = newest["chain_saturation"]
        yield from _above("chain_saturation", share, rules.saturations, f"{share:.2f}", "of all pixels")
    before = _curve(series[:-1], "chain_gradient_norm")[-_MAX_REFERENCE:]
    if "chain_gradient_norm" in newest and len(before) >= _MIN_REFERENCE and (usual := median(before)) > 0:
        norm = newest["chain_gradient_norm"]
        where = f"times the usual {usual:.3g}"
        yield from _above("chain_gradient_norm", norm / usual, rules.gradient_ratios, f"{norm:.3g}", where)
    yield from _collapse(series, rules)
    yield from _standstill(series, rules)


def _above(name: str, value: float, bounds: tuple[float, float], shown: str, unit: str) -> Iterator[_Sign]:
    strange, unhealthy = bounds
    if value > unhealthy:
        yield _Sign("unhealthy", name, f"{name} {shown}, above {unhealthy:g} {unit}")
    elif value > strange:
        yield _Sign("strange", name, f"{name} {shown}, above {strange:g} {unit}")


def _collapse(series: Series, rules: HealthRules) -> Iterator[_Sign]:
    """Yield a sign for a metric that has fallen below its bound; one that was never above the bound gives none."""
    for found in collapses(dict(enumerate(series, 1)), rules.min_effective_rank, rules.min_spread):
        if found.was_above:
            severity: Literal["unhealthy", "early"] = "unhealthy" if found.epochs >= rules.patience_epochs else "early"
            yield _Sign(severity, found.name, found.text)


def _standstill(series: Series, rules: HealthRules) -> Iterator[_Sign]:
    """Yield a sign for chains or a bank that do not move; "frozen" if they never did, since going back cannot help."""
    for name in _MOVEMENTS:
        curve = _curve(series, name)
        below = epochs_below(dict(enumerate(curve, 1)), rules.min_movement)
        if below:
            severity: Literal["unhealthy", "frozen"] = "frozen" if below == len(curve) else "unhealthy"
            text = f"frozen: {name} {curve[-1]:.3g}, below {rules.min_movement:g} for {below} epochs"
            yield _Sign(severity if below >= rules.patience_epochs else "early", name, text)


def _lasts(sign: _Sign, series: Series, rules: HealthRules) -> bool:
    """Return whether the same metric was strange, or worse, in every one of the last epochs."""
    earlier = (series[: len(series) - back] for back in range(1, rules.strange_epochs))
    return all(any(other.name == sign.name for other in _signs(part, rules)) for part in earlier)


def _curve(series: Series, name: str) -> list[float]:
    return [values[name] for values in series if name in values]
