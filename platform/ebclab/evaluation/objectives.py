"""The objectives by which checkpoints and settings of sweeps are selected. Higher is better for all."""

from __future__ import annotations

from ebclab.config.sections import EvaluationConfig
from ebclab.evaluation.monitors.numbers import MONITOR_OF, MONITORS, NUMBERS

_OF_MONITORS = {
    number.objective: number.words if number.better == "higher" else f"-{number.words}"
    for number in NUMBERS.values()
    if number.objective
}

OBJECTIVES = {
    "holdout_knn": "held-out kNN",
    "holdout_linear": "held-out linear",
    "effective_rank": "effective rank",
    "alignment_uniformity": "-(alignment + uniformity)",
    **_OF_MONITORS,
}
"""The values of ``evaluation.objective`` and their names for display."""

ANSWERED = ("holdout_knn", "holdout_linear")
"""Objectives that are accuracies with per-image correctness, as needed for paired comparisons of runs."""

MEASURED_WITH = {
    "holdout_knn": ("knn_neighbours", "knn_temperature", "knn_bank_limit"),
    "holdout_linear": ("linear_protocol", "linear_l2", "linear_seeds"),
}
"""Settings of ``evaluation`` that these objectives depend on; the others may depend on all of them."""

NEED_LABELS = ("holdout_knn", *(name for name, monitor in MONITOR_OF.items() if MONITORS[monitor].needs_labels))
"""Objectives that need labels."""

SHARES = ("holdout_knn", *(name for name in MONITOR_OF if name in NUMBERS and NUMBERS[name].is_share))
"""Objectives that lie in [0, 1] and are shown in per cent."""


def labels_problem(config: EvaluationConfig, unlabelled: int) -> str:
    """Return why monitors cannot measure images without labels; empty if they can, or if there are no monitors.

    Args:
        config: Objective and monitors.
        unlabelled: Number of images without a label.
    """
    if not unlabelled or not config.monitor:
        return ""
    if wanting := [name for name in config.monitor if MONITORS[name].needs_labels]:
        return f"evaluation.monitor: {', '.join(wanting)} needs labels, got {unlabelled:,} images without; leave it out"
    if config.objective in NEED_LABELS:
        return (
            f"evaluation.objective: {config.objective} needs labels, got {unlabelled:,} images without, which are then "
            "not scored at all; set evaluation.objective=holdout_effective_rank"
        )
    return ""


def shown_score(objective: str, value: float) -> str:
    """Return a value of an objective as text; values of ``SHARES`` in per cent."""
    return f"{value:.1%}" if objective in SHARES else f"{value:.3f}"


def shown_interval(objective: str, low: float, high: float) -> str:
    """Return an interval as text, with additional digits (at most four) if its two ends would read the same."""
    is_rate, scale = objective in SHARES, 100 if objective in SHARES else 1
    first = 1 if is_rate else 3
    for digits in range(first, first + 5):
        ends = [f"{scale * value:.{digits}f}" for value in (low, high)]
        if ends[0] != ends[1]:
            break
    return f"{ends[0]}% to {ends[1]}%" if is_rate else f"{ends[0]} to {ends[1]}"
