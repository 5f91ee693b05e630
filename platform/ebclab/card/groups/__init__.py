"""The groups of a card, one module each with its ``GROUP``; all of them by name."""

from __future__ import annotations

from ebclab.card.groups import (
    calibration,
    classification,
    energies,
    few_labels,
    fine_tuning,
    geometry,
    out_of_distribution,
    pictures,
    robustness,
    transfer,
)
from ebclab.card.measuring import Group

_IN_ORDER = (  # of the page
    classification,
    few_labels,
    fine_tuning,
    transfer,
    calibration,
    robustness,
    out_of_distribution,
    energies,
    geometry,
    pictures,
)

GROUPS: dict[str, Group] = {each.GROUP.name: each.GROUP for each in _IN_ORDER}
"""Groups by name, as in ``--only``."""
