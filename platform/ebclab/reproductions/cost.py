"""Estimates the cost of a study before it is run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ebclab.config import ExperimentConfig
from ebclab.data.sources.catalogue import DATASETS
from ebclab.evaluation.evaluate import PROBES
from ebclab.reproductions.plan import StudyPlan

ARITHMETIC: Mapping[str, float] = {
    "moco": 0.67,
    "simsiam": 1.02,
    "byol": 1.34,
    "vicreg": 1.02,
    "barlow": 1.02,
    "supervised": 0.5,
    "jem": 7.67,
    "ebclr": 4.84,
    "vem-langevin": 0.67,
    "vem-svgd": 0.74,
    "vem-image": 4.17,
}
"""Arithmetic of a step relative to SimCLR, counted by benchmarks/steps.py; 1 for methods not listed."""

SHARED_KEYS = 1 / 0.67
"""Cost factor if the query network also encodes the keys: a second pass with a gradient."""

IMAGES_PER_SECOND, SIDE = 1_050.0, 28
"""Images per second of a SimCLR step of the small encoder on two CPU cores, measured, and the side of the images."""

WIDTH = 16
"""Usual width of the small encoder, which was measured; narrower ones take less."""

FASTEST = 6_700.0
"""Images per second on 8-pixel digits, measured; an upper bound, as smaller images are no faster."""

MULTIPLICATIONS: Mapping[str, float] = {
    "resnet18": 5.6e8,
    "resnet50": 1.3e9,
    "pyramidnet-110-84": 7.6e8,
    "wrn28": 5.95e9,
}
"""Multiplications of a forward pass of one 32 x 32 image, by encoder with a CIFAR stem and its usual width."""

GPU_FLOPS = 1e13
"""Sustained operations per second of a GPU in training; assumed, not measured."""

SECONDS_PER_RUN = 1.0
"""Overhead of a run: start and checkpoints."""

CARD_SECONDS = 12.0
"""Seconds of an expensive group of the card on 1,442 digits, measured; larger datasets take longer."""

PROBE_SECONDS = 5e-4
"""Seconds per training image of a linear probe of 200 epochs, including features: 30 s for 60,000 images."""


@dataclass(frozen=True)
class StudyCost:
    """The estimated cost of a study."""

    runs: int  # number of runs
    seconds: float | None  # total time of all runs in sequence; None if there is no estimate for an encoder or dataset
    device: str  # device that the time refers to
    basis: str  # how it was estimated

    def in_words(self) -> str:
        """Return the time in words, e.g. 12 s, 40 min or 3.1 GPU h; "none" if nothing is run, or "no estimate"."""
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
    """Estimate the cost of a study: on two CPU cores or, at the scale "paper", on one GPU."""
    on_gpu = plan.scale == "paper"
    seconds = sum((_gpu_seconds if on_gpu else _core_seconds)(config) for config in plan.runs.values())
    seconds += SECONDS_PER_RUN * len(plan.runs) + (0.0 if on_gpu else _probe_seconds(plan) + _reference_seconds(plan))
    basis = (
        f"operations of the passes of all steps at {GPU_FLOPS / 1e12:.0f} TFLOP/s, which is assumed; methods weighed "
        "by counted arithmetic; probes left out"
        if on_gpu
        else "images a second of a SimCLR step of the small encoder, measured on two processor cores, scaled by "
        "pixels, at batches of 256 (smaller ones take longer); methods weighed by counted arithmetic; "
        f"probes by images, a card {CARD_SECONDS:.0f} s at least"
    )
    known = seconds if math.isfinite(seconds) else None
    return StudyCost(len(plan.runs), known, "GPU" if on_gpu else "two cores", basis)


def _core_seconds(config: ExperimentConfig) -> float:
    if config.encoder.name != "small" or config.encoder.width > WIDTH:
        return math.nan
    return _images(config) * _weight(config) / min(IMAGES_PER_SECOND * (SIDE / _side(config)) ** 2, FASTEST)


def _gpu_seconds(config: ExperimentConfig) -> float:
    counted = MULTIPLICATIONS if (config.encoder.stem, config.encoder.width) == ("cifar", 0) else {}
    count = counted.get(config.encoder.name, math.nan) * (_side(config) / 32) ** 2
    passes = 2 * 3 * 2  # two views; backward costs twice the forward pass; multiply and add
    return _images(config) * _weight(config) * passes * count / GPU_FLOPS


def _probe_seconds(plan: StudyPlan) -> float:
    probed = {
        (run, each.dataset or config.data.name, each.epoch, each.protocol)
        for run, config in plan.runs.items()
        for each in plan.wanted_of(run)
        if each.measure in PROBES
    }
    images = sum(DATASETS[name].num_images["train"] for _, name, *_ in probed if name in DATASETS)
    others = ("card/", "samples/")
    beside = {run for cell in plan.cells if cell.wanted.measure.startswith(others) for run in cell.runs.values()}
    return PROBE_SECONDS * images + CARD_SECONDS * len(beside)


def _reference_seconds(plan: StudyPlan) -> float:
    """Return the time for raw pixels, once, and for the untrained encoder of each seed."""
    return sum(
        PROBE_SECONDS * DATASETS[protocol.config.data.name].num_images["train"] * (1 + len(seeds))
        for protocol, seeds in plan.protocols
        if protocol.config.data.name in DATASETS
    )


def _images(config: ExperimentConfig) -> float:
    """Return the number of images over all epochs; NaN if the size of the dataset is unknown."""
    known = DATASETS.get(config.data.name)
    count = config.data.train_limit or (known.num_images["train"] if known else math.nan)
    return count * (1 - config.data.holdout_rate) * config.training.epochs


def _side(config: ExperimentConfig) -> int:
    known = DATASETS.get(config.data.name)
    return config.views.image_size or (known.shape[1] if known else 32)


def _weight(config: ExperimentConfig) -> float:
    shared = getattr(config.method, "key_encoder", "") == "shared"
    return ARITHMETIC.get(config.method_name, 1.0) * (SHARED_KEYS if shared else 1.0)
