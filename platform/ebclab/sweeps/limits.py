"""What a sweep may use, and what its launch needs to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ebclab.data.holdout import Split
from ebclab.runs.initial_weights import InitialWeights
from ebclab.sweeps.display.live_table import SweepDisplay
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.plan import SweepPlan
from energy_contrast.method import Method


@dataclass(frozen=True)
class Limits:
    """What a sweep may use; may differ when it is resumed.

    Attributes:
        gpus_per_trial: GPUs of a trial, fractions allowed; None means a whole one where there are any.
        concurrent: Trials at once; None means as many as fit.
        seconds: Time for the search; None means no limit.
    """

    gpus_per_trial: float | None = None
    concurrent: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Launch:
    """A sweep that was found fit to start.

    Attributes:
        folder: Where everything lies.
        plan: What is searched, and how.
        split: The images of all trials.
        methods: Methods by name.
        limits: What may be used.
        warm_start: Where a sweep before this one lies, to learn from.
        earlier: Its points and objectives.
        display: Where progress is shown.
        weights: What the encoders of all trials start from; None means random weights.
    """

    folder: SweepFolder
    plan: SweepPlan
    split: Split
    methods: Mapping[str, type[Method]]
    limits: Limits
    warm_start: str | None
    earlier: Sequence[tuple[dict[str, Any], float]]
    display: SweepDisplay
    weights: InitialWeights | None = None
