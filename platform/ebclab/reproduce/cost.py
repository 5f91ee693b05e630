"""What a study costs before it is run: an estimate, and how it was made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ebclab.config import ExperimentConfig
from ebclab.data.sources.load import DATASETS
from ebclab.evaluation.evaluate import PROBES
from ebclab.reproduce.plan import StudyPlan

ARITHMETIC: Mapping[str, float] = {
    "moco": 0.67,
    "simsiam": 1.02,
    "byol": 1.34,
    "vicreg": 1.02,
    "supervised": 0.5,
    "jem": 7.67,
    "ebclr": 4.84,
    "vem-langevin": 0.67,
    "vem-svgd": 0.74,
    "vem-image": 4.17,
}
"""Arithmetic of a step in steps of SimCLR, counted in benchmarks/results/steps.md; methods that are missing have 1."""

SHARED_KEYS = 1 / 0.67
"""What keys by the queries' own network cost more: a second pass with a gradient."""

IMAGES_PER_SECOND, SIDE = 1_050.0, 28
"""Images a second of a SimCLR step of the small encoder on two processor cores, measured, and the images' side."""

FASTEST = 6_700.0
"""The same on digits of 8 pixels, measured: smaller images are no quicker."""

MULTIPLICATIONS: Mapping[str, float] = {"resnet18": 5.6e8, "resnet50": 1.3e9}
"""Multiplications of a forward pass of one image of 32 pixels, by encoder with a CIFAR stem."""

GPU_FLOPS = 1e13
"""Operations a second that a GPU is taken to sustain in training; assumed, not measured."""

SECONDS_PER_RUN = 1.0
"""Start and checkpoints of a run."""

CARD_SECONDS = 12.0
"""A costly group of the card on 1,442 digits, measured; larger sets take longer."""

PROBE_SECONDS = 5e-4
"""A linear probe of 200 epochs with its features, for each training image: 30 s for 60,000."""


@dataclass(frozen=True)
class StudyCost:
    """An estimate.

    Attributes:
        runs: Number of runs.
        seconds: Time for all of them, one after the other; None where encoder or images are none that were counted.
        device: What the time is of.
        basis: How it was estimated.
    """

    runs: int
    seconds: float | None
    device: str
    basis: str

    def in_words(self) -> str:
        """Return the time in words, such as 12 s, 40 min or 3.1 h; "none" where nothing is run, or "no estimate"."""
        if not self.runs:
            return "none"
        if self.seconds is None:
            return "no estimate"
        hours = self.seconds / 3600
        if self.device != "GPU" and self.seconds < 90:
            return f"{self.seconds:.0f} s"
        if self.device == "GPU":
            return f"{hours:,.0f} GPU h" if hours >= 10 else f"{hours:.1f} GPU h"
        return f"{self.seconds / 60:.0f} min" if self.seconds < 5400 else f"{hours:,.1f} h"


def estimate(plan: StudyPlan) -> StudyCost:
    """Return what a study costs at a scale: on two processor cores, or, at the paper's scale, on one GPU."""
    on_gpu = plan.scale == "paper"
    seconds = sum((_gpu_seconds if on_gpu else _core_seconds)(run.config) for run in plan.runs.values())
    seconds += SECONDS_PER_RUN * len(plan.runs) + (0.0 if on_gpu else _probe_seconds(plan))
    basis = (
        f"operations of the passes of all steps at {GPU_FLOPS / 1e12:.0f} TFLOP/s, which is assumed; methods weighed "
        "by counted arithmetic; probes left out"
        if on_gpu
        else "images a second of a SimCLR step measured on two processor cores, scaled by pixels, at batches of 256 "
        "(smaller ones take longer); methods weighed by counted arithmetic; "
        f"probes by images, a card {CARD_SECONDS:.0f} s at least"
    )
    known = seconds if math.isfinite(seconds) else None
    return StudyCost(len(plan.runs), known, "GPU" if on_gpu else "two cores", basis)


def _core_seconds(config: ExperimentConfig) -> float:
    return _images(config) * _weight(config) / min(IMAGES_PER_SECOND * (SIDE / _side(config)) ** 2, FASTEST)


def _gpu_seconds(config: ExperimentConfig) -> float:
    count = MULTIPLICATIONS.get(config.encoder.name, math.nan) * (_side(config) / 32) ** 2
    passes = 2 * 3 * 2  # two views; forward and twice as much back; a multiplication and an addition
    return _images(config) * _weight(config) * passes * count / GPU_FLOPS


def _probe_seconds(plan: StudyPlan) -> float:
    """Return the seconds of all probes, each run on each dataset that it is measured on, and of cards."""
    probed = {
        (run, cell.wanted.dataset or plan.runs[run].config.data.name)
        for cell in plan.cells
        if cell.wanted.measure in PROBES
        for run in cell.runs.values()
    }
    images = sum(DATASETS[name].num_images["train"] for _, name in probed if name in DATASETS)
    on_cards = {run for cell in plan.cells if cell.wanted.measure.startswith("card/") for run in cell.runs.values()}
    return PROBE_SECONDS * images + CARD_SECONDS * len(on_cards)


def _images(config: ExperimentConfig) -> float:
    """Return the images of all epochs; NaN where nobody says how many there are."""
    known = DATASETS.get(config.data.name)
    count = config.data.train_limit or (known.num_images["train"] if known else math.nan)
    return count * (1 - config.data.holdout_rate) * config.training.epochs


def _side(config: ExperimentConfig) -> int:
    known = DATASETS.get(config.data.name)
    return config.views.image_size or (known.shape[1] if known else 32)


def _weight(config: ExperimentConfig) -> float:
    shared = getattr(config.method, "key_encoder", "") == "shared"
    return ARITHMETIC.get(config.method_name, 1.0) * (SHARED_KEYS if shared else 1.0)
