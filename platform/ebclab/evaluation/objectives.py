"""The objectives by which checkpoints and settings of sweeps are selected. Higher is better for all."""

from __future__ import annotations

from ebclab.config.sections import EvaluationConfig
from ebclab.evaluation.monitors.numbers import MONITOR_OF, MONITORS, NUMBERS
from ebclab.interval import PLAIN, PLAIN_DIFFERENCE, POINTS, SHARE, NumberFormat

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
    """Return why monitors cannot measure images without labels; empty if they can, or if there are no monitors."""
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


def format_of(objective: str) -> NumberFormat:
    """Return how values of an objective are written; those of ``SHARES`` in per cent."""
    return SHARE if objective in SHARES else PLAIN


def difference_format(objective: str) -> NumberFormat:
    """Return how differences of an objective are written."""
    return POINTS if objective in SHARES else PLAIN_DIFFERENCE
