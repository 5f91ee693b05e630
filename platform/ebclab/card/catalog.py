"""Every group of a card by its name, in the order of the page."""

from __future__ import annotations

from ebclab.card.groups import classification, few_labels, fine_tuning, geometry, transfer
from ebclab.card.measuring import Group

GROUPS: dict[str, Group] = {
    each.INFO.name: Group(each.INFO, each.measure)
    for each in (classification, few_labels, fine_tuning, transfer, geometry)
}
"""Groups by the name that ``--only`` takes."""
