"""Mean AP of linear classifiers on multi-label images: the part of ``transfer`` for PASCAL VOC."""

from __future__ import annotations

from torch import Tensor

from ebclab.card.measuring import Measuring
from ebclab.card.results import Findings, Number
from ebclab.data.image_set import ImageSet
from ebclab.document.document import Table
from ebclab.errors import DataError
from ebclab.evaluation.adaptation.multi_label import (
    MarkedImages,
    average_precisions,
    choose_penalty_by_ap,
    fit_each_class,
)
from ebclab.evaluation.linear_head import PENALTIES
from ebclab.evaluation.measures.average_precision import Interpolation
from ebclab.evaluation.protocols import LBFGS

_TITLES: dict[str, tuple[Interpolation, str]] = {
    "map-11-point": ("11-point", "mean AP, 11-point (VOC2007)"),
    "map-area": ("area", "mean AP, all points (VOC2010)"),
}


def measure(measuring: Measuring) -> Findings:
    """Return the mean AP on the test images, and the AP of each class."""
    data, names = measuring.measured, measuring.measured.train.class_names
    features, held = measuring.features(data.train), data.is_held_out
    marks = _marks(data.train)
    chosen = choose_penalty_by_ap(
        LBFGS,
        MarkedImages(features[~held], marks[~held]),
        MarkedImages(features[held], marks[held]),
        names,
        measuring.on_progress,
    )
    head = fit_each_class(LBFGS, MarkedImages(features, marks), chosen.l2, names)
    logits, test = head.logits(measuring.features(data.test).double()), _marks(data.test)
    protocol = (
        f"a logistic regression a class to convergence, l2 {chosen.l2:g} chosen from {PENALTIES[-1]:g} to "
        f"{PENALTIES[0]:g} by mean AP of {int(held.sum()):,} held-out training images, then fitted on all; images in "
        "which a class is difficult count neither for nor against it"
    )
    precisions = {
        name: average_precisions(logits, test, interpolation, names) for name, (interpolation, _) in _TITLES.items()
    }
    numbers = tuple(
        Number(name, _TITLES[name][1], float(each.mean()), protocol, len(test), "higher")
        for name, each in precisions.items()
    )
    rows: tuple[tuple[str | int | float, ...], ...] = tuple(
        (
            name,
            int((test[:, label] == 1).sum()),
            int((test[:, label] < 0).sum()),
            *(round(100 * float(each[label]), 2) for each in precisions.values()),
        )
        for label, name in enumerate(names)
    )
    columns = ("class", "images with it", "difficult", "AP, 11-point, %", "AP, all points, %")
    return Findings(numbers, (Table("AP of each class", columns, rows),))


def _marks(images: ImageSet) -> Tensor:
    if images.marks is None:
        raise DataError(f"{images.name}: images with marks for each class are needed, got one label an image")
    return images.marks
