"""Findings: signs that a run of any method has collapsed or learns nothing, from what every epoch measures.

``find`` is read by runs; ``collapses`` and the limits also by the rollback of samplers and by the stopping of trials.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

Metrics = Mapping[int, Mapping[str, float]]
"""Metrics by epochs done; each epoch may lack any of them."""

Kind = Literal["collapsed", "learns nothing", "kNN at chance", "kNN fell", "weights grew"]

COLLAPSES = ("effective_rank", "embedding_spread")
"""Metrics that fall when an encoder collapses: it maps all images to nearly one point."""

SATURATION = "log_k_saturation"
READ = ("info_nce", SATURATION, *COLLAPSES)
"""The training metrics that findings read."""

KNN, GROWTH = "holdout_knn", "weight_growth"
"""What else they read: the held-out kNN accuracy, and the norm of all weights as a multiple of its start."""


ENERGIES = ("energy_data", "energy_chains", "energy_gap")
"""Energies that methods with a sampler log, in nats."""

MIN_EFFECTIVE_RANK = 1.5
"""An encoder with a lower effective rank counts as collapsed; dimensions."""

MIN_SPREAD = 0.005
"""An encoder with a lower ``embedding_spread`` counts as collapsed."""

COLLAPSE_EPOCHS = 3
"""Epochs that a collapse must last before it counts."""

FIRST_STEP = 200
"""No run counts as collapsed before this step."""

FIRST_EPOCHS = 2
"""Measured epochs at the start that set the scale of an energy."""

MAX_ENERGY_RATIO = 100.0
"""An energy of more than so many times its scale has diverged."""

_SMALL_ENERGY = 1.0  # nats; the energies of a new network may be near zero, and ratios to them meaningless
_MIN_SATURATION = 0.01  # InfoNCE that is not this share of log K below log K has learnt nothing
_MIN_LEFT = 0.875  # smallest share of its best kNN accuracy above chance that a run may keep
_MAX_GROWTH = 100.0  # largest norm of all weights, as a multiple of its start


@dataclass(frozen=True)
class FindingRules:
    """What the findings on a run depend on beside its metrics."""

    has_negatives: bool = True  # of the method; without them, InfoNCE says nothing
    patience: int = COLLAPSE_EPOCHS  # epochs, for kNN measurements, that a sign must last
    warmup_epochs: int = 0  # epochs of the learning rate's warm-up, whose effective ranks and InfoNCE do not count
    first_step: int = FIRST_STEP  # no finding before
    # accuracy of always naming the most frequent class of the held-out images; 1 if it is not known
    chance: float = 1.0
    images: int = 0  # number of held-out images


class Collapse(NamedTuple):
    """A metric that is below its limit: for how many epochs, whether it ever was above, and the same as text."""

    name: str
    epochs: int
    was_above: bool
    text: str


def find(metrics_by_epoch: Metrics, rules: FindingRules) -> Iterator[tuple[Kind, str]]:
    """Yield what is wrong after the newest epoch, at most once for each kind: the kind, and the same with numbers."""
    judged = {epoch: metrics for epoch, metrics in metrics_by_epoch.items() if epoch > rules.warmup_epochs}
    after = rules.warmup_epochs
    collapsed = collapses(judged, MIN_EFFECTIVE_RANK, MIN_SPREAD, after)
    if (collapse := next((found for found in collapsed if found.epochs >= rules.patience), None)) is not None:
        yield "collapsed", collapse.text
    saturation = curve_of(judged, SATURATION) if rules.has_negatives else {}
    if (epochs := epochs_below(saturation, _MIN_SATURATION, after)) >= rules.patience:
        newest = judged[max(saturation)]
        log_k = newest["info_nce"] / (1 - newest[SATURATION])
        chance = f"InfoNCE {newest['info_nce']:.3g} is no better than chance, log K = {log_k:.3g}"
        yield "learns nothing", f"learns nothing: {chance}, for {epochs} epochs"
    yield from _of_knn(list(curve_of(metrics_by_epoch, KNN).values()), rules)
    growth = list(curve_of(metrics_by_epoch, GROWTH).values())
    if growth and not growth[-1] <= _MAX_GROWTH:
        yield "weights grew", f"weights grew: their norm is {growth[-1]:,.0f} times that of their start"


def _of_knn(values: list[float], rules: FindingRules) -> Iterator[tuple[Kind, str]]:
    """Yield a finding for accuracies at chance, or far below the best ones before."""
    chance, recent, before = rules.chance, values[-rules.patience :], values[: -rules.patience]
    if chance >= 1 or len(recent) < rules.patience or not rules.images:
        return
    noise = math.sqrt(chance * (1 - chance) / rules.images)  # standard error of an accuracy at chance
    most_frequent = f"the most frequent class is {chance:.1%} of them"
    if max(recent) <= chance + 2 * noise:
        yield "kNN at chance", f"kNN at chance: {recent[-1]:.1%} of held-out images right, {most_frequent}"
        return
    best = max(before, default=0.0)
    error = math.sqrt(sum(share * (1 - share) for share in (best, max(recent))) / rules.images)  # of their difference
    if best - max(recent) > 2.5 * error and max(recent) < chance + _MIN_LEFT * (best - chance):
        yield "kNN fell", f"kNN fell: {recent[-1]:.1%} of held-out images right after {best:.1%}, {most_frequent}"


def collapses(
    metrics_by_epoch: Metrics, min_effective_rank: float, min_spread: float, after: int = 0
) -> Iterator[Collapse]:
    """Yield every metric of ``COLLAPSES`` that is below its limit after the newest epoch that measured it.

    ``after`` is the number of epochs at the start that are not among the metrics.
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


def energy_scale(first: Iterable[float]) -> float:
    """Return the scale that later values of an energy are compared with: its largest early magnitude, at least 1 nat.

    ``first`` is the energy in the first epochs, in nats; values that are not finite do not count.
    """
    return max([_SMALL_ENERGY, *(abs(value) for value in first if math.isfinite(value))])
