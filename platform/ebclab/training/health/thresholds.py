"""Metrics of energies and of collapse with their limits, used by the health of a run and by the stopping of trials."""

from __future__ import annotations

import math
from collections.abc import Iterable

ENERGIES = ("energy_data", "energy_chains", "energy_gap")
"""Energies that methods with a sampler log, in nats."""

COLLAPSES = ("effective_rank", "embedding_spread")
"""Metrics that fall when an encoder collapses: it maps all images to nearly one point."""

MIN_EFFECTIVE_RANK = 1.5
"""An encoder with a lower effective rank counts as collapsed; dimensions."""

MIN_SPREAD = 0.005
"""An encoder with a lower ``embedding_spread`` counts as collapsed."""

COLLAPSE_EPOCHS = 3
"""Epochs that a collapse must last before it counts."""

FIRST_STEP = 200
"""No run counts as collapsed before this step."""

FIRST_EPOCHS = 2
"""Measured epochs at the start that set the scale of an energy."""

MAX_ENERGY_RATIO = 100.0
"""An energy of more than so many times its scale has diverged."""

_SMALL_ENERGY = 1.0  # nats; the energies of a new network may be near zero, and ratios to them meaningless


def energy_scale(first: Iterable[float]) -> float:
    """Return the scale that later values of an energy are compared with: its largest early magnitude, at least 1 nat.

    Args:
        first: The energy in the first epochs, in nats; values that are not finite do not count.
    """
    return max([_SMALL_ENERGY, *(abs(value) for value in first if math.isfinite(value))])
