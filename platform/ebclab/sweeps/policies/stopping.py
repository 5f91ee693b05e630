"""Early stopping: pure functions that decide whether a trial ends before its budget.

Every rule reads curves (values by epochs done) from the log, judges the newest epoch of the trial's own curve, and
returns a reason to stop, or None to continue. So a resumed sweep makes the same decisions as an undisturbed one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from statistics import median as middle

from ebclab.formatting import count
from ebclab.sweeps.log import Trial
from ebclab.sweeps.request import Scheduler
from ebclab.training.health.findings import (
    COLLAPSE_EPOCHS,
    ENERGIES,
    FIRST_EPOCHS,
    MAX_ENERGY_RATIO,
    MIN_EFFECTIVE_RANK,
    MIN_SPREAD,
    Metrics,
    collapses,
    curve_of,
    energy_scale,
)
from energy_contrast.settings import setting

Curve = Mapping[int, float]

REASONS = {
    "rung ": "below the others at a rung",
    "epoch ": "below the median",
    "no gain": "no gain",
    "collapsed": "collapsed",
    "diverged": "diverged",
}
"""How a trial ended, by the beginning of its reason; logs keep reasons, so that no beginning may change."""

_SHARES = {2: "half", 3: "third", 4: "quarter"}


@dataclass(frozen=True)
class StopRules:
    """When trials of a sweep end before their budget."""

    scheduler: Scheduler = setting(
        "asha",
        "asha: at each rung only the best continue; median: stop below the median of the others; pbt: bad trials "
        "continue from good ones' weights; none: only collapse and divergence end a trial.",
    )
    grace_epochs: int = setting(
        0, "No comparison before; 0 means a fifth of the budget, at least 1.", unit="epochs", minimum=0
    )
    reduction_factor: int = setting(
        3, "asha: one trial in this many continues at a rung, and each rung is this many times higher.", minimum=2
    )
    min_others: int = setting(3, "median: no comparison with fewer others.", unit="trials", minimum=1)
    plateau_epochs: int = setting(
        0, "Stop after so many epochs without a better objective; 0 means never.", unit="epochs", minimum=0
    )
    plateau_min_change: float = setting(0.0, "A gain of the objective up to this counts as none.", minimum=0.0)
    min_effective_rank: float = setting(
        MIN_EFFECTIVE_RANK,
        "Below it an encoder counts as collapsed: 128 dimensions that all vary by 0.5 % of their mean have 1.6, the "
        "untrained small encoder has 16. 0 means never.",
        unit="dimensions",
        minimum=0.0,
    )
    min_spread: float = setting(
        MIN_SPREAD,
        "Below it too: embedding_spread, the standard deviation of unit vectors over images, mean of the D dimensions "
        "times sqrt(D). 1 when spread evenly, 0 when all agree. 0 means never.",
        minimum=0.0,
    )
    collapse_epochs: int = setting(COLLAPSE_EPOCHS, "How long a collapse must last.", unit="epochs", minimum=1)
    max_energy_ratio: float = setting(
        MAX_ENERGY_RATIO,
        "An energy so many times those of the trial's first epochs has diverged; 0 means never.",
        minimum=0.0,
    )

    def grace(self, epochs: int) -> int:
        """Return the first epoch in which a trial of ``epochs`` epochs is compared with others."""
        return self.grace_epochs or max(1, epochs // 5)

    @property
    def stops_early(self) -> bool:
        """Whether a trial that is healthy may end before its budget."""
        return self.scheduler in ("asha", "median") or self.plateau_epochs > 0


def decide(trial: Trial, others: Sequence[Trial], rules: StopRules, *, warmup_epochs: float = 0.0) -> str | None:
    """Return why ``trial`` should stop after its newest epoch, or None; no collapse counts in its warm-up.

    The rules are tried in this order: divergence, collapse, the scheduler, plateau. A trial in its last epoch is never
    stopped. Confirming trials stop only for divergence and collapse, and no trial is compared with them. Others, among
    which ``trial`` may be, count with what the log held when the epoch was measured, so a decision made again, after a
    process was lost, is the same.
    """
    if trial.epochs_done >= trial.epochs:
        return None
    metrics = {epoch: {"objective": point.objective, **point.metrics} for epoch, point in trial.curve.items()}
    reason = diverged(metrics, max_energy_ratio=rules.max_energy_ratio) or collapsed(
        metrics,
        min_effective_rank=rules.min_effective_rank,
        min_spread=rules.min_spread,
        patience_epochs=rules.collapse_epochs,
        after=math.ceil(warmup_epochs),
    )
    if reason or trial.kind == "confirm":
        return reason
    place = trial.curve[trial.epochs_done].place
    rivals = (other.objectives_by(place) for other in others if other.kind == "search" and other.id != trial.id)
    return _scheduled(trial, rivals, rules) or plateau(
        trial.objectives, patience_epochs=rules.plateau_epochs, min_change=rules.plateau_min_change
    )


def _scheduled(trial: Trial, rivals: Iterable[Curve], rules: StopRules) -> str | None:
    own, grace = trial.objectives, rules.grace(trial.epochs)
    match rules.scheduler:
        case "asha":
            factor = rules.reduction_factor
            return asha(own, rivals, grace_epochs=grace, reduction_factor=factor, max_epochs=trial.epochs)
        case "median":
            return median(own, rivals, grace_epochs=grace, min_others=rules.min_others)
        case "pbt" | "none":
            return None


def asha(
    own: Curve, others: Iterable[Curve], *, grace_epochs: int, reduction_factor: int, max_epochs: int
) -> str | None:
    """Asynchronous successive halving, stopping variant (Li et al. 2020, as in Ray Tune).

    Rungs are ``grace_epochs * reduction_factor^k`` below ``max_epochs``. A trial is judged once at each rung, in the
    first epoch measured at or after it, against the values of all others, stopped ones included, in that same epoch. It
    stops when its value is below their ``1 - 1/reduction_factor`` quantile (linear between neighbours). The first trial
    at a rung continues. Curves are objectives by epochs done; higher is better.
    """
    if grace_epochs < 1 or reduction_factor < 2:
        raise ValueError(f"asha: rungs do not rise, got grace_epochs {grace_epochs}, factor {reduction_factor}")
    epoch = max(own, default=0)
    before = max((earlier for earlier in own if earlier < epoch), default=0)
    rung, reached = grace_epochs, 0
    while rung <= epoch:
        rung, reached = rung * reduction_factor, rung
    if reached <= before or epoch >= max_epochs:
        return None
    values = sorted(_finite(other.get(epoch, math.nan) for other in others), reverse=True)
    if not values:
        return None
    place, rest = divmod(len(values) - 1, reduction_factor)  # from the best
    bound = values[place]
    if rest:
        bound += (values[place + 1] - bound) * rest / reduction_factor
    if own[epoch] >= bound:
        return None
    share = _SHARES.get(reduction_factor, f"1/{reduction_factor}")
    group = f"the best {share} of {count(len(values), 'other')}" if len(values) > 1 else "the only other"
    return f"rung {reached}: {own[epoch]:.4g} is below {bound:.4g}, {group}"


def median(own: Curve, others: Iterable[Curve], *, grace_epochs: int, min_others: int) -> str | None:
    """Median stopping rule (Golovin et al. 2017).

    The trial stops when its best value so far is below the median of the others' means up to the same epoch. Others
    that never reached this epoch do not count; there is no comparison before ``grace_epochs``, or with fewer others.
    """
    epoch = max(own, default=0)
    if epoch < grace_epochs:
        return None
    so_far = [
        _finite(value for at, value in other.items() if at <= epoch)
        for other in others
        if max(other, default=0) >= epoch
    ]
    means = [fmean(values) for values in so_far if values]
    best = max(_finite(own.values()), default=math.nan)
    if len(means) < max(min_others, 1) or not best < middle(means):
        return None
    return (
        f"epoch {epoch}: its best, {best:.4g}, is below {middle(means):.4g}, the median of {count(len(means), 'other')}"
    )


def plateau(own: Curve, *, patience_epochs: int, min_change: float) -> str | None:
    """Stop when the best of the last ``patience_epochs`` (0: never) is at most ``min_change`` above the best before."""
    last = max(own, default=0) - patience_epochs
    past = _finite(value for epoch, value in own.items() if epoch <= last)
    recent = _finite(value for epoch, value in own.items() if epoch > last)
    if not past or not recent or max(recent) - max(past) > min_change:
        return None
    return f"no gain in {patience_epochs} epochs: {max(recent):.4g} after {max(past):.4g}"


def collapsed(
    metrics_by_epoch: Metrics, *, min_effective_rank: float, min_spread: float, patience_epochs: int, after: int = 0
) -> str | None:
    """Stop when the encoder has mapped all images to nearly one point for ``patience_epochs`` in a row.

    The first epochs, up to ``after``, do not count.
    """
    judged = {epoch: metrics for epoch, metrics in metrics_by_epoch.items() if epoch > after}
    found = collapses(judged, min_effective_rank, min_spread, after)
    return next((collapse.text for collapse in found if collapse.epochs >= patience_epochs), None)


def diverged(metrics_by_epoch: Metrics, *, max_energy_ratio: float) -> str | None:
    """Stop when a metric is not finite, or an energy is far above those of the trial's first measured epochs.

    ``max_energy_ratio`` is the largest ``|energy|`` as a multiple of the largest of these, which counts as 1 nat when
    it is smaller; 0 ignores energies.
    """
    epoch = max(metrics_by_epoch, default=0)
    newest = metrics_by_epoch.get(epoch, {})
    for name, value in newest.items():
        if not math.isfinite(value):
            return f"diverged: {name} is {value} after epoch {epoch}"
    for name in ENERGIES if max_energy_ratio else ():
        scale = energy_scale([*curve_of(metrics_by_epoch, name).values()][:FIRST_EPOCHS])
        if abs(newest.get(name, 0.0)) > max_energy_ratio * scale:
            return f"diverged: {name} {newest[name]:.3g}, over {max_energy_ratio:g} times the {scale:.3g} of the start"
    return None


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]
