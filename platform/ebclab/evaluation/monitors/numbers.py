"""Metrics of all monitors: their names, whether higher is better, and which of them may be objectives.

All names begin with ``holdout_``: they are measured on held-out training images, never on the test set. Objectives are
maximised; the objective of a metric for which lower is better is its negative, named ``minus_`` and its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MonitorNumber:
    """One metric of a monitor."""

    name: str  # key in logs
    words: str  # name for display
    better: Literal["higher", "lower", "neither"]
    is_share: bool = False  # whether it lies in [0, 1] and is shown in per cent
    trap: str = ""  # why it must not be an objective; empty if it may be one

    @property
    def objective(self) -> str:
        """Its value of ``evaluation.objective``; empty if it must not be an objective."""
        if self.trap:
            return ""
        return self.name if self.better == "higher" else f"minus_{self.name}"


@dataclass(frozen=True)
class MonitorInfo:
    """A group of metrics that ``evaluation.monitor`` enables."""

    name: str
    doc: str
    needs_labels: bool
    numbers: tuple[MonitorNumber, ...]


_KEEPS_ALL = "an encoder that keeps every pixel wins"
_INFORMATIVE = "it says what the loss can still tell, not how good the encoder is"

MONITORS: dict[str, MonitorInfo] = {
    info.name: info
    for info in (
        MonitorInfo(
            "classification",
            "accuracy of the linear probe of evaluation.linear_protocol",
            True,
            (MonitorNumber("holdout_linear", "held-out linear", "higher", is_share=True),),
        ),
        MonitorInfo(
            "geometry",
            "alignment, uniformity, effective rank, InfoNCE with its saturation, effective sample size; no labels",
            False,
            (
                MonitorNumber(
                    "holdout_alignment", "alignment", "lower", trap="an encoder that maps all images to one point wins"
                ),
                MonitorNumber("holdout_uniformity", "uniformity", "lower"),
                MonitorNumber("holdout_effective_rank", "effective rank", "higher"),
                MonitorNumber("holdout_info_nce", "InfoNCE", "lower"),
                MonitorNumber("holdout_log_k_saturation", "log-K saturation", "neither", True, _INFORMATIVE),
                MonitorNumber("holdout_ess", "effective sample size", "neither", True, _INFORMATIVE),
            ),
        ),
        MonitorInfo(
            "information",
            "mutual information between two training views of all held-out images, by InfoNCE; no labels",
            False,
            (
                MonitorNumber("holdout_information", "information, nats", "neither", trap=_KEEPS_ALL),
                MonitorNumber("holdout_information_share", "information, share of log K", "neither", trap=_KEEPS_ALL),
            ),
        ),
        MonitorInfo(
            "calibration",
            "NLL, Brier score and ECE with 15 bins of a linear classifier with evaluation.linear_l2",
            True,
            (
                MonitorNumber("holdout_nll", "NLL", "lower"),
                MonitorNumber("holdout_brier", "Brier score", "lower"),
                MonitorNumber(
                    "holdout_ece",
                    "ECE, 15 bins",
                    "lower",
                    True,
                    "a classifier that sees no image and says how common "
                    "the classes are has an ECE of 0, and would win",
                ),
            ),
        ),
        MonitorInfo(
            "few-labels",
            "accuracy of logistic regression that knows 10 % of the labels, list 0, penalty by cross-validation",
            True,
            (MonitorNumber("holdout_few_labels", "10 % of the labels", "higher", is_share=True),),
        ),
        MonitorInfo(
            "out-of-distribution",
            "AUROC of telling the rotated or inverted half of the images from the other by neighbours; no labels",
            False,
            (
                MonitorNumber("holdout_auroc_rotated", "AUROC, rotated images", "higher", is_share=True),
                MonitorNumber("holdout_auroc_inverted", "AUROC, inverted images", "higher", is_share=True),
            ),
        ),
        MonitorInfo(
            "robustness",
            "accuracy of a linear classifier on 200 images under FGSM and PGD-20 at 8/255",
            True,
            (
                MonitorNumber("holdout_fgsm", "FGSM, 8/255", "higher", is_share=True),
                MonitorNumber("holdout_pgd", "PGD-20, 8/255", "higher", is_share=True),
            ),
        ),
    )
}
"""All monitors by name."""

NUMBERS: dict[str, MonitorNumber] = {number.name: number for info in MONITORS.values() for number in info.numbers}
"""All metrics of monitors by name."""

MONITOR_OF: dict[str, str] = {
    number.objective: info.name for info in MONITORS.values() for number in info.numbers if number.objective
}
"""The monitor that measures the metric of an objective, by objective."""
