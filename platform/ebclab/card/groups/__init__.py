"""The groups of a card by name, each declared beside what measures it."""

from __future__ import annotations

from ebclab.card.groups import (
    calibration,
    classification,
    energies,
    fine_tuning,
    geometry,
    out_of_distribution,
    pictures,
    robustness,
)

_IN_ORDER = (  # of the page
    classification.GROUP,
    fine_tuning.FEW_LABELS,
    fine_tuning.GROUP,
    classification.TRANSFER,
    calibration.GROUP,
    robustness.GROUP,
    out_of_distribution.GROUP,
    energies.GROUP,
    geometry.GROUP,
    pictures.GROUP,
)

GROUPS = {each.name: each for each in _IN_ORDER}
"""Groups by name, as in ``--only``."""
