"""Transfer of the frozen encoder to datasets that it was not trained on."""

from __future__ import annotations

from dataclasses import replace

from ebclab.card.groups import classification, several_labels
from ebclab.card.images import MeasuredSet, short_names
from ebclab.card.measuring import GroupInfo, Measuring
from ebclab.card.results import Findings, Number
from ebclab.document.document import Table
from ebclab.errors import DataError

INFO = GroupInfo(
    name="transfer",
    title="Transfer",
    doc="kNN and linear probes on every further dataset, its images seen through the same frozen encoder; mean AP of "
    "images with several labels",
    source="Kornblith et al. (2019), section 3; the protocols of Classification on frozen features; Everingham et al. "
    "(2010), section 4.2",
    needs=("other dataset",),
    looks_at=("other",),
)


def measure(measuring: Measuring) -> Findings:
    """Return the results of ``classification`` or ``several_labels`` on every further dataset."""
    numbers: list[Number] = []
    tables: list[Table] = []
    problems: list[str] = []
    for short, other in zip(short_names(measuring.others), measuring.others, strict=True):
        try:
            findings = _classified(measuring, other)
        except DataError as error:
            problems.append(str(error))
            continue
        resize = _as_seen(measuring, other)
        numbers += [
            replace(
                each,
                name=f"{short}-{each.name}",
                title=f"{each.title} on {other.name}",
                protocol=f"{each.protocol}; {len(other.train):,} training images of {other.name}{resize}",
            )
            for each in findings.numbers
        ]
        tables += [replace(each, title=f"{each.title} on {other.name}") for each in findings.tables]
    if not numbers:
        raise DataError("; ".join(problems))
    return Findings(tuple(numbers), tuple(tables), remarks=tuple(problems))


def _classified(measuring: Measuring, other: MeasuredSet) -> Findings:
    if other.may_have_several_labels:
        return several_labels.measure(measuring.elsewhere(other))
    if other.label_problem:
        raise DataError(other.label_problem)
    return classification.measure(measuring.elsewhere(other))


def _as_seen(measuring: Measuring, other: MeasuredSet) -> str:
    """Return a phrase on the resizing of the images for the encoder; empty if they are not resized."""
    preprocessing, (height, width) = measuring.subject.preprocessing, other.train.images.shape[-2:]
    side = preprocessing.image_size
    if (height, width) == (side, side):
        return ""
    return f", {width} x {height} pixels scaled to {side} x {side}, {preprocessing.resampling}"
