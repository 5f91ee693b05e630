"""Raw pixels and the untrained encoder beside results, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ebclab.evaluation.comparison import CHANCE, Measurements, difference_with_chance, mean_and_interval
from ebclab.interval import POINTS, Interval
from ebclab.runs.references import FILE, PIXELS, REFERENCES, UNTRAINED, Name, Protocol, References
from ebclab.storage.kinds import COMPARISON
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.results import ConfirmedSettings, SeedScores, SettingsTest

BY = replace(POINTS, is_signed=False)
THE: dict[str, str] = {PIXELS: "raw pixels", UNTRAINED: "the untrained encoder"}
"""References within a sentence."""


def is_above(difference: Interval) -> bool:
    """Return whether a result is above a reference beyond noise, by their difference."""
    return difference.low is not None and difference.low > 0


def against(name: str, difference: Interval) -> str:
    """Return how a result that is not above a reference beyond noise compares with it, after "is"."""
    if difference.mean >= 0:
        return f"within noise of {THE[name]}, {POINTS.difference(difference)}"
    lead = -1 * difference
    if lead.is_noise:
        return f"below {THE[name]} by {BY.number(lead.mean)}, within noise ({BY.ends(lead.low, lead.high)})"
    return f"below {THE[name]} by {BY.difference(lead)}"


def verdict(difference: Interval) -> str:
    """Return how a result compares with a reference, for a cell of a table."""
    if difference.low is None or difference.high is None:
        return "no interval"
    if difference.low > 0:
        return "above, beyond noise"
    return "below, beyond noise" if difference.high < 0 else "within noise"


@dataclass(frozen=True)
class OverReference:
    """The winner of a sweep beside one reference on the test set."""

    probe: str  # the probe of both
    name: Name  # the reference
    value: Interval  # accuracy of the reference
    difference: Interval  # how much higher that of the winner is


def _beside(folder: SweepFolder) -> References:
    """Return the references of a sweep; a comparison on a disk keeps those of its sweeps."""
    above = folder.path.parent.parent
    inside = folder.remote is None and folder.path.parent.name == COMPARISON.inside
    if inside and not folder.references.exists() and (above / COMPARISON.settings).is_file():
        return References.read(above / FILE)
    return References.read(folder.references, folder.address_of(folder.references))


def over_references(
    folder: SweepFolder, plan: SweepPlan, log: SweepLog, winner: ConfirmedSettings, test: dict[str, SeedScores]
) -> tuple[OverReference, ...]:
    """Return the winner's test scores beside the references that the sweep measured by the same protocol."""
    known = _beside(folder)
    train_limit = SettingsTest.limit_in(log, plan)
    both = [
        (probe, name, score, reference)
        for probe, score in test.items()
        for name in REFERENCES
        if (reference := known.scores(name, Protocol(plan.config, train_limit, probe), winner.seeds))
    ]
    return tuple(
        OverReference(
            probe,
            name,
            mean_and_interval(reference, 1, is_rate=True),
            difference_with_chance(
                Measurements.of(winner.seeds, score.values, score.answers), reference, CHANCE / len(both)
            ),
        )
        for probe, name, score, reference in both
    )


def learnt(found: Sequence[OverReference]) -> str:
    """Return whether the winner of a sweep is above the references, beyond noise."""
    if not found:
        return (
            "Whether anything was learnt is not known: this sweep did not measure raw pixels and the untrained encoder."
        )
    both = " and ".join(THE[name] for name in dict.fromkeys(each.name for each in found))
    below: dict[str, list[str]] = {}
    for each in found:
        if not is_above(each.difference):
            below.setdefault(each.probe, []).append(against(each.name, each.difference))
    if not below:
        return f"On the test images the winner is above {both}, beyond noise."
    said = "; ".join(f"by {probe}, it is {' and '.join(lines)}" for probe, lines in below.items())
    return f"On the test images the winner is not above {both} beyond noise: {said}."
