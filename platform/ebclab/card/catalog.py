"""Every group of a card by its name, in the order of the page."""

from __future__ import annotations

from ebclab.card.groups import calibration, classification, geometry, out_of_distribution, pictures, robustness
from ebclab.card.measuring import Group

GROUPS: dict[str, Group] = {
    each.INFO.name: Group(each.INFO, each.measure)
    for each in (classification, calibration, robustness, out_of_distribution, geometry, pictures)
}
"""Groups by the name that ``--only`` takes."""
