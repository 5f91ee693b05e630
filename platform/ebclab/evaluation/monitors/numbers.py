"""The numbers of every monitor: what they are called, which direction is good, and which may choose between encoders.

All begin with ``holdout_``: they are measured on held-out training images, never on the test set. Whatever is chosen by
is larger when better; a number that is better when lower is chosen by its negative, called ``minus_`` and its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MonitorNumber:
    """One number of a monitor.

    Attributes:
        name: Key in logs.
        words: What people call it.
        better: Which direction is good.
        is_share: It lies in [0, 1] and is read in per cent.
        trap: Why nothing is chosen by it; empty where it may be an objective.
    """

    name: str
    words: str
    better: Literal["higher", "lower", "neither"]
    is_share: bool = False
    trap: str = ""

    @property
    def objective(self) -> str:
        """What ``evaluation.objective`` calls it; empty where nothing is chosen by it."""
        if self.trap:
            return ""
        return self.name if self.better == "higher" else f"minus_{self.name}"


@dataclass(frozen=True)
class MonitorInfo:
    """A group of numbers that ``evaluation.monitor`` names.

    Attributes:
        name: Key.
        doc: One line for people.
        needs_labels: Images without labels are refused.
        numbers: What it measures.
    """

    name: str
    doc: str
    needs_labels: bool
    numbers: tuple[MonitorNumber, ...]


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
"""Every monitor by its name."""

NUMBERS: dict[str, MonitorNumber] = {number.name: number for info in MONITORS.values() for number in info.numbers}
"""Every number of a monitor by its name."""

MONITOR_OF: dict[str, str] = {
    number.objective: info.name for info in MONITORS.values() for number in info.numbers if number.objective
}
"""The monitor that measures what an objective is made of, by the objective."""
