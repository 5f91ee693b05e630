"""Metrics of energies and collapse with their limits, for a run's own health and for a sweep that stops its trials."""

from __future__ import annotations

import math
from collections.abc import Iterable

ENERGIES = ("energy_data", "energy_chains", "energy_gap")
"""Metrics in nats, as methods with a sampler log them."""

COLLAPSES = ("effective_rank", "embedding_spread")
"""Metrics that fall when the encoder maps all images to nearly one point."""

MIN_EFFECTIVE_RANK = 1.5
"""Below it, in dimensions, an encoder counts as collapsed."""

MIN_SPREAD = 0.005
"""Below it, an encoder counts as collapsed by its ``embedding_spread``."""

COLLAPSE_EPOCHS = 3
"""Epochs that a collapse must last before it counts."""

FIRST_EPOCHS = 2
"""Measured epochs at the start that set the scale of an energy."""

MAX_ENERGY_RATIO = 100.0
"""Above so many times its scale, an energy has diverged."""

_SMALL_ENERGY = 1.0  # nats; the energies of a new network may be near zero, and any ratio to that is large


def energy_scale(first: Iterable[float]) -> float:
    """Return what an energy's later values are compared with: the largest size of its first values, at least 1 nat.

    Args:
        first: The energy in the first epochs, in nats; values that are not finite do not count.
    """
    return max([_SMALL_ENERGY, *(abs(value) for value in first if math.isfinite(value))])
