"""Findings: signs that a run of any method has collapsed or learns nothing, from what every epoch measures.

``find`` is read by runs, ``collapses`` also by the rollback of samplers and by the stopping of trials.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ebclab.training.health.thresholds import COLLAPSE_EPOCHS, COLLAPSES, FIRST_STEP, MIN_EFFECTIVE_RANK, MIN_SPREAD

Metrics = Mapping[int, Mapping[str, float]]
"""Metrics by epochs done; each epoch may lack any of them."""

Kind = Literal["collapsed", "learns nothing", "kNN at chance", "kNN fell", "weights grew"]

SATURATION = "log_k_saturation"
READ = ("info_nce", SATURATION, *COLLAPSES)
"""The training metrics that findings read."""

KNN, GROWTH = "holdout_knn", "weight_growth"
"""What else they read: the held-out kNN accuracy, and the norm of all weights as a multiple of its start."""


@dataclass(frozen=True)
class FindingRules:
    """When a run counts as collapsed or as learning nothing."""

    min_effective_rank: float = MIN_EFFECTIVE_RANK  # of the encoder's projections; dimensions
    min_spread: float = MIN_SPREAD  # of the projections, their ``embedding_spread``
    # InfoNCE that is not this share of log K below log K has learnt nothing; minus infinity for methods without
    # negatives
    min_saturation: float = 0.01
    min_left: float = 0.875  # smallest share of its best kNN accuracy above chance that a run may keep
    max_growth: float = 100.0  # largest norm of all weights, as a multiple of its start
    patience: int = COLLAPSE_EPOCHS  # epochs, for kNN measurements, that a sign must last
    warmup_epochs: int = 0  # epochs of the learning rate's warm-up, whose effective ranks and InfoNCE do not count
    first_step: int = FIRST_STEP  # no finding before
    # accuracy of always naming the most frequent class of the held-out images; 1 if it is not known
    chance: float = 1.0
    images: int = 0  # number of held-out images


class Finding(NamedTuple):
    """One finding: its kind, and the same with numbers."""

    kind: Kind
    text: str


class Collapse(NamedTuple):
    """A metric that is below its limit: for how many epochs, whether it ever was above, and the same as text."""

    name: str
    epochs: int
    was_above: bool
    text: str


def find(metrics_by_epoch: Metrics, rules: FindingRules) -> Iterator[Finding]:
    """Yield what is wrong after the newest epoch, at most one finding of each kind."""
    judged = {epoch: metrics for epoch, metrics in metrics_by_epoch.items() if epoch > rules.warmup_epochs}
    bounds, after = (rules.min_effective_rank, rules.min_spread), rules.warmup_epochs
    collapse = next((found for found in collapses(judged, *bounds, after) if found.epochs >= rules.patience), None)
    if collapse is not None:
        yield Finding("collapsed", collapse.text)
    saturation = curve_of(judged, SATURATION)
    if (epochs := epochs_below(saturation, rules.min_saturation, after)) >= rules.patience:
        newest = judged[max(saturation)]
        log_k = newest["info_nce"] / (1 - newest[SATURATION])
        chance = f"InfoNCE {newest['info_nce']:.3g} is no better than chance, log K = {log_k:.3g}"
        yield Finding("learns nothing", f"learns nothing: {chance}, for {epochs} epochs")
    yield from _of_knn(list(curve_of(metrics_by_epoch, KNN).values()), rules)
    growth = list(curve_of(metrics_by_epoch, GROWTH).values())
    if growth and not growth[-1] <= rules.max_growth:
        yield Finding("weights grew", f"weights grew: their norm is {growth[-1]:,.0f} times that of their start")


def _of_knn(values: list[float], rules: FindingRules) -> Iterator[Finding]:
    """Yield a finding for accuracies at chance, or far below the best ones before."""
    chance, recent, before = rules.chance, values[-rules.patience :], values[: -rules.patience]
    if chance >= 1 or len(recent) < rules.patience or not rules.images:
        return
    noise = math.sqrt(chance * (1 - chance) / rules.images)  # standard error of an accuracy at chance
    most_frequent = f"the most frequent class is {chance:.1%} of them"
    if max(recent) <= chance + 2 * noise:
        text = f"kNN at chance: {recent[-1]:.1%} of held-out images right, {most_frequent}"
        yield Finding("kNN at chance", text)
        return
    best = max(before, default=0.0)
    error = math.sqrt(sum(share * (1 - share) for share in (best, max(recent))) / rules.images)  # of their difference
    if best - max(recent) > 2.5 * error and max(recent) < chance + rules.min_left * (best - chance):
        yield Finding(
            "kNN fell", f"kNN fell: {recent[-1]:.1%} of held-out images right after {best:.1%}, {most_frequent}"
        )


def collapses(
    metrics_by_epoch: Metrics, min_effective_rank: float, min_spread: float, after: int = 0
) -> Iterator[Collapse]:
    """Yield every metric of ``COLLAPSES`` that is below its limit after the newest epoch that measured it.

    Args:
        metrics_by_epoch: Metrics by epochs done.
        min_spread: Smallest healthy ``embedding_spread``.
        after: Epochs at the start that are not among the metrics.
    """
    for name, least in zip(COLLAPSES, (min_effective_rank, min_spread), strict=True):
        curve = curve_of(metrics_by_epoch, name)
        if epochs := epochs_below(curve, least, after):
            was_above = any(not value < least for value in curve.values())
            text = f"collapsed: {name} {curve[max(curve)]:.3g}, below {least:g} for {epochs} epochs"
            yield Collapse(name, epochs, was_above, text)


def curve_of(metrics_by_epoch: Metrics, name: str) -> dict[int, float]:
    """Return one metric by epochs done, in their order, where it was measured."""
    return {
        epoch: metrics_by_epoch[epoch][name] for epoch in sorted(metrics_by_epoch) if name in metrics_by_epoch[epoch]
    }


def epochs_below(curve: Mapping[int, float], least: float, after: int = 0) -> int:
    """Return for how many epochs up to the newest, from epoch ``after`` on, the curve has been below ``least``."""
    healthy = max((epoch for epoch, value in curve.items() if not value < least), default=after)
    return max(curve, default=healthy) - healthy
