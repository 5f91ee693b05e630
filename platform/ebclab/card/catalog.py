"""All groups of a card by name, in the order of the page."""

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

_IN_ORDER = (
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

GROUPS: dict[str, Group] = {each.INFO.name: Group(each.INFO, each.measure) for each in _IN_ORDER}
"""Groups by name, as in ``--only``."""
