"""The objectives by which checkpoints and sweeps are chosen, in words. Higher is better for all."""

from __future__ import annotations

OBJECTIVES = {
    "holdout_knn": "held-out kNN",
    "holdout_linear": "held-out linear",
    "effective_rank": "effective rank",
    "alignment_uniformity": "-(alignment + uniformity)",
}
"""The values of ``evaluation.objective`` and how a person calls them."""

NEED_LABELS = ("holdout_knn", "holdout_linear")
"""Those that are accuracies, in [0, 1]."""


def shown_score(objective: str, value: float) -> str:
    """Return a value of an objective as text: accuracies in per cent."""
    return f"{value:.1%}" if objective in NEED_LABELS else f"{value:.3f}"


def shown_interval(objective: str, low: float, high: float) -> str:
    """Return an interval as text, with as many digits as its two ends need to differ."""
    is_rate, scale = objective in NEED_LABELS, 100 if objective in NEED_LABELS else 1
    first = 1 if is_rate else 3
    for digits in range(first, first + 5):
        ends = [f"{scale * value:.{digits}f}" for value in (low, high)]
        if ends[0] != ends[1]:
            break
    return f"{ends[0]}% to {ends[1]}%" if is_rate else f"{ends[0]} to {ends[1]}"
