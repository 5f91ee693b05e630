"""Classification on frozen features by nearest neighbours and linear probes, on the card's dataset and on others."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ebclab.card.card import Findings, Number, accuracy, as_number
from ebclab.card.images import MeasuredSet, short_names
from ebclab.card.measuring import LABELS, OTHER_DATASET, OWN_CLASSIFIER, Group, Measuring
from ebclab.data.image_set import ImageSet
from ebclab.document.document import Table
from ebclab.errors import DataError
from ebclab.evaluation.evaluate import PROBES
from ebclab.evaluation.linear import PENALTIES, FeatureSplit, fit_head
from ebclab.evaluation.multi_label import (
    Interpolation,
    average_precisions,
    fit_each_class,
)


def measure(measuring: Measuring) -> Findings:
    """Return test accuracies of classifiers that were trained on the full training set."""
    data = measuring.measured
    x, test_x = measuring.features(data.train), measuring.features(data.test)
    split = FeatureSplit(x, data.train.labels, test_x, data.test.labels, data.test.keys, data.num_classes)
    settings = replace(measuring.options.settings, linear_seeds=measuring.options.seeds)
    numbers = [
        as_number(PROBES[name](split, settings, measuring.subject.seed or 0, measuring.on_progress), title)
        for name, title in (("knn", "kNN"), ("linear", "linear probe"), ("top5", "linear probe, top 5"))
        if name != "top5" or data.num_classes > 5
    ]
    chosen = measuring.tried.most_accurate
    head = fit_head(x, data.train.labels, data.num_classes, chosen.l2, start=chosen)
    logits = head.logits(test_x.double())
    protocol = (
        f"logistic regression to convergence, l2 {chosen.l2:g} chosen from {PENALTIES[-1]:g} to {PENALTIES[0]:g} by "
        f"accuracy on {len(data.parts[1]):,} held-out training images, then fitted on all training images"
    )
    numbers.append(_top(1, logits, measuring, protocol))
    if data.num_classes > 5:
        numbers.append(_top(5, logits, measuring, protocol))
    if measuring.has_own_classifier:
        numbers.append(_own_classifier(measuring))
    return Findings(tuple(numbers), tables=(_penalties(measuring),), remarks=measuring.code_not_run)


def _own_classifier(measuring: Measuring) -> Number:
    test = measuring.measured.test
    right = measuring.own_test_logits.argmax(dim=1) == test.labels
    title = "the method's own classifier"
    return accuracy("own-classifier", title, right, test.keys, protocol=OWN_CLASSIFIER)


def _top(count: int, logits: Tensor, measuring: Measuring, protocol: str) -> Number:
    test = measuring.measured.test
    right = (logits.topk(count, dim=1).indices == test.labels[:, None]).any(dim=1)
    title = "linear probe, penalty chosen" + (f", top {count}" if count > 1 else "")
    return accuracy(f"linear-top{count}", title, right, test.keys, protocol=protocol)


def _penalties(measuring: Measuring) -> Table:
    tried = measuring.tried
    chosen = {"for accuracy": tried.most_accurate.l2, "for probabilities": tried.likeliest.l2}
    rows = tuple(
        (
            f"{l2:g}",
            round(100 * share, 2),
            round(loss, 4),
            ", ".join(use for use, of_use in chosen.items() if of_use == l2),
        )
        for l2, share, loss in zip(PENALTIES, tried.accuracies, tried.losses, strict=True)
    )
    note = (
        "No test image was looked at for this. The probe takes the penalty of best accuracy, of equals the strongest; "
        "calibration, robustness and out-of-distribution, which depend on probabilities, that of least NLL."
    )
    return Table("Penalties tried", ("l2", "held-out accuracy, %", "held-out NLL, nats", "chosen"), rows, note)


GROUP = Group(
    name="classification",
    title="Classification on frozen features",
    doc="weighted kNN, a linear probe, and a linear probe whose penalty is chosen on held-out images; top 1 and top 5",
    source="Wu et al. (2018), section 3.4; the linear protocols of `ebclab show --protocols`",
    needs=(LABELS,),
    looks_at=("train", "test"),
    measure=measure,
)


HELD_OUT = "it has no test part: measured on images held out by hash"
"""Part of the protocol of numbers on such a dataset."""


def measure_transfer(measuring: Measuring) -> Findings:
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
        seen = _as_seen(measuring, other) + (f"; {HELD_OUT}" if other.tests_held_out else "")
        numbers += [
            replace(
                each,
                name=f"{short}-{each.name}",
                title=f"{each.title} on {other.name}",
                protocol=f"{each.protocol}; {len(other.train):,} training images of {other.name}{seen}",
            )
            for each in findings.numbers
        ]
        tables += [replace(each, title=f"{each.title} on {other.name}") for each in findings.tables]
    if not numbers:
        raise DataError("; ".join(problems))
    return Findings(tuple(numbers), tuple(tables), remarks=tuple(problems))


def _classified(measuring: Measuring, other: MeasuredSet) -> Findings:
    if other.may_have_several_labels:
        return several_labels(measuring.elsewhere(other))
    if other.label_problem:
        raise DataError(other.label_problem)
    return measure(measuring.elsewhere(other))


def _as_seen(measuring: Measuring, other: MeasuredSet) -> str:
    """Return a phrase on the resizing of the images for the encoder; empty if they are not resized."""
    preprocessing, (height, width) = measuring.subject.preprocessing, other.train.images.shape[-2:]
    side = preprocessing.image_size
    if (height, width) == (side, side):
        return ""
    return f", {width} x {height} pixels scaled to {side} x {side}, {preprocessing.resampling}"


PRECISIONS: dict[str, tuple[Interpolation, str]] = {
    "map-11-point": ("11-point", "mean AP, 11-point (VOC2007)"),
    "map-area": ("area", "mean AP, all points (VOC2010)"),
}


def several_labels(measuring: Measuring) -> Findings:
    """Return the mean AP on the test images, and the AP of each class."""
    data, names = measuring.measured, measuring.measured.train.class_names
    held = data.is_held_out
    head = fit_each_class(measuring.features(data.train), _marks(data.train), held, names, measuring.on_progress)
    logits, test = head.logits(measuring.features(data.test).double()), _marks(data.test)
    protocol = (
        f"a logistic regression a class to convergence, l2 {head.l2:g} chosen from {PENALTIES[-1]:g} to "
        f"{PENALTIES[0]:g} by mean AP of {int(held.sum()):,} held-out training images, then fitted on all; images in "
        "which a class is difficult count neither for nor against it"
    )
    precisions = {
        name: average_precisions(logits, test, interpolation, names) for name, (interpolation, _) in PRECISIONS.items()
    }
    numbers = tuple(
        Number(name, PRECISIONS[name][1], float(each.mean()), protocol, len(test), "higher")
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


TRANSFER = Group(
    name="transfer",
    title="Transfer",
    doc="kNN and linear probes on every further dataset, its images seen through the same frozen encoder; mean AP of "
    "images with several labels",
    source="Kornblith et al. (2019), section 3; the protocols of Classification on frozen features; Everingham et al. "
    "(2010), section 4.2",
    needs=(OTHER_DATASET,),
    looks_at=("other",),
    measure=measure_transfer,
)
