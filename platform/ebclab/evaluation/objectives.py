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
