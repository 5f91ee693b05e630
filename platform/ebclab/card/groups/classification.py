"""Classification on frozen features: nearest neighbours and linear probes."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ebclab.card.card import Findings, Number, accuracy, as_number
from ebclab.card.measuring import OWN_CLASSIFIER, Group, Measuring
from ebclab.document.document import Table
from ebclab.evaluation.evaluate import PROBES, FeatureSplit
from ebclab.evaluation.linear import PENALTIES, fit_head


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
    needs=("labels",),
    looks_at=("train", "test"),
    measure=measure,
)
