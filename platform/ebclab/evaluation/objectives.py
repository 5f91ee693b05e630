"""Metrics of monitors, and the objectives by which checkpoints and settings of sweeps are selected.

Metrics of monitors begin with ``holdout_``: they are measured on held-out training images, never on the test set.
Objectives are maximised; that of a metric for which lower is better is its negative, named ``minus_`` and its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ebclab.config.sections import EvaluationConfig
from ebclab.interval import PLAIN, PLAIN_DIFFERENCE, POINTS, SHARE, NumberFormat

_COLLAPSED = "an encoder that maps all images to one point wins"
_KEEPS_ALL = "an encoder that keeps every pixel wins"
_INFORMATIVE = "it says what the loss can still tell, not how good the encoder is"
_BLIND = "a classifier that sees no image and says how common the classes are has an ECE of 0, and would win"


@dataclass(frozen=True)
class MonitorNumber:
    """One metric of a monitor."""

    monitor: str  # that measures it: a value of ``evaluation.monitor``
    name: str  # key in logs
    words: str  # name for display
    better: Literal["higher", "lower", "neither"]
    is_share: bool = False  # whether it is in [0, 1] and is shown in per cent
    trap: str = ""  # why it must not be an objective; empty if it may be one

    @property
    def objective(self) -> str:
        """Its value of ``evaluation.objective``; empty if it must not be an objective."""
        if self.trap:
            return ""
        return self.name if self.better == "higher" else f"minus_{self.name}"


NUMBERS: dict[str, MonitorNumber] = {
    number.name: number
    for number in (
        MonitorNumber("classification", "holdout_linear", "held-out linear", "higher", is_share=True),
        MonitorNumber("geometry", "holdout_alignment", "alignment", "lower", trap=_COLLAPSED),
        MonitorNumber("geometry", "holdout_uniformity", "uniformity", "lower"),
        MonitorNumber("geometry", "holdout_effective_rank", "effective rank", "higher"),
        MonitorNumber("geometry", "holdout_info_nce", "InfoNCE", "lower"),
        MonitorNumber("geometry", "holdout_log_k_saturation", "log-K saturation", "neither", True, _INFORMATIVE),
        MonitorNumber("geometry", "holdout_ess", "effective sample size", "neither", True, _INFORMATIVE),
        MonitorNumber("information", "holdout_information", "information, nats", "neither", trap=_KEEPS_ALL),
        MonitorNumber(
            "information", "holdout_information_share", "information, share of log K", "neither", trap=_KEEPS_ALL
        ),
        MonitorNumber("calibration", "holdout_nll", "NLL", "lower"),
        MonitorNumber("calibration", "holdout_brier", "Brier score", "lower"),
        MonitorNumber("calibration", "holdout_ece", "ECE, 15 bins", "lower", True, _BLIND),
        MonitorNumber("few-labels", "holdout_few_labels", "10 % of the labels", "higher", is_share=True),
        MonitorNumber("out-of-distribution", "holdout_auroc_rotated", "AUROC, rotated images", "higher", is_share=True),
        MonitorNumber(
            "out-of-distribution", "holdout_auroc_inverted", "AUROC, inverted images", "higher", is_share=True
        ),
        MonitorNumber("robustness", "holdout_fgsm", "FGSM, 8/255", "higher", is_share=True),
        MonitorNumber("robustness", "holdout_pgd", "PGD-20, 8/255", "higher", is_share=True),
    )
}
"""All metrics of monitors by name."""

LABELLED_MONITORS = ("classification", "calibration", "few-labels", "robustness")
"""Monitors that need labels."""

MONITOR_OF: dict[str, str] = {number.objective: number.monitor for number in NUMBERS.values() if number.objective}
"""The monitor that measures the metric of an objective, by objective."""

OBJECTIVES = {
    "holdout_knn": "held-out kNN",
    "holdout_linear": "held-out linear",
    "effective_rank": "effective rank",
    "alignment_uniformity": "-(alignment + uniformity)",
    **{
        number.objective: number.words if number.better == "higher" else f"-{number.words}"
        for number in NUMBERS.values()
        if number.objective
    },
}
"""The values of ``evaluation.objective`` and their names for display."""

ANSWERED = ("holdout_knn", "holdout_linear")
"""Objectives that are accuracies with per-image correctness, as needed for paired comparisons of runs."""

MEASURED_WITH = {
    "holdout_knn": ("knn_neighbours", "knn_temperature", "knn_bank_limit"),
    "holdout_linear": ("linear_protocol", "linear_l2", "linear_seeds"),
}
"""Settings of ``evaluation`` that these objectives depend on; the others may depend on all of them."""

NEED_LABELS = ("holdout_knn", *(name for name, monitor in MONITOR_OF.items() if monitor in LABELLED_MONITORS))
"""Objectives that need labels."""

SHARES = ("holdout_knn", *(name for name in MONITOR_OF if name in NUMBERS and NUMBERS[name].is_share))
"""Objectives that lie in [0, 1] and are shown in per cent."""


def labels_problem(config: EvaluationConfig, unlabelled: int) -> str:
    """Return why monitors cannot measure images without labels; empty if they can, or if there are no monitors."""
    if not unlabelled or not config.monitor:
        return ""
    if wanting := [name for name in config.monitor if name in LABELLED_MONITORS]:
        return (
            f"evaluation.monitor: {', '.join(wanting)} needs labels of two classes, got {unlabelled:,} images without; "
            "leave it out"
        )
    if config.objective in NEED_LABELS:
        return (
            f"evaluation.objective: {config.objective} needs labels of two classes, got {unlabelled:,} images without, "
            "which are then not scored at all; set evaluation.objective=holdout_effective_rank"
        )
    return ""


def format_of(objective: str) -> NumberFormat:
    """Return how values of an objective are written; those of ``SHARES`` in per cent."""
    return SHARE if objective in SHARES else PLAIN


def difference_format(objective: str) -> NumberFormat:
    """Return how differences of an objective are written."""
    return POINTS if objective in SHARES else PLAIN_DIFFERENCE
