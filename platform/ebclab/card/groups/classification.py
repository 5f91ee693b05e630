"""How well the classes lie apart: nearest neighbours and linear classifiers on frozen features."""

from __future__ import annotations

from torch import Tensor

from ebclab.card.measuring import GroupInfo, Measuring
from ebclab.card.results import Findings, Number, Table, accuracy
from ebclab.evaluation.knn import knn_predictions
from ebclab.evaluation.linear import linear_answers
from ebclab.evaluation.linear_head import PENALTIES, fit_head
from ebclab.evaluation.protocols import LBFGS, PROTOCOLS, LbfgsProtocol, look_up

INFO = GroupInfo(
    name="classification",
    title="Classification on frozen features",
    doc="weighted kNN, a linear probe, and a linear probe whose penalty is chosen on held-out images; top 1 and top 5",
    source="Wu et al. (2018), section 3.4; the linear protocols of `ebclab show --protocols`",
    needs=("labels",),
)


def measure(measuring: Measuring) -> Findings:
    """Return accuracies on the test set of classifiers that were trained on the whole training set."""
    data = measuring.measured
    x, test_x = measuring.features(data.train), measuring.features(data.test)
    numbers = [_knn(measuring, x, test_x), _linear(measuring, x, test_x)]
    chosen = measuring.classifier.chosen
    head = fit_head(LBFGS, x, data.train.labels, data.num_classes, chosen.l2)
    logits = head.logits(test_x.double())
    protocol = (
        f"logistic regression to convergence, l2 {chosen.l2:g} chosen from {PENALTIES[-1]:g} to {PENALTIES[0]:g} on "
        f"{len(data.parts[1]):,} held-out training images, then fitted on all training images"
    )
    numbers.append(_top(1, logits, measuring, protocol))
    if data.num_classes > 5:
        numbers.append(_top(5, logits, measuring, protocol))
    return Findings(tuple(numbers), tables=(_penalties(measuring),))


def _knn(measuring: Measuring, x: Tensor, test_x: Tensor) -> Number:
    data, settings = measuring.measured, measuring.options.settings
    predictions = knn_predictions(
        x,
        data.train.labels,
        test_x,
        neighbours=settings.knn_neighbours,
        temperature=settings.knn_temperature,
        num_classes=data.num_classes,
        on_progress=measuring.on_progress,
    )
    return accuracy(
        "knn",
        "kNN",
        (predictions == data.test.labels)[None],
        data.test.keys,
        protocol=f"{settings.knn_neighbours} neighbours by cosine similarity, votes exp(similarity / "
        f"{settings.knn_temperature:g})",
    )


def _linear(measuring: Measuring, x: Tensor, test_x: Tensor) -> Number:
    data, settings = measuring.measured, measuring.options.settings
    protocol = look_up("evaluation.linear_protocol", "protocol", settings.linear_protocol, PROTOCOLS)
    right = linear_answers(
        protocol.name,
        x,
        data.train.labels,
        test_x,
        data.test.labels,
        num_classes=data.num_classes,
        seeds=measuring.seeds,
        l2=settings.linear_l2,
        on_progress=measuring.on_progress,
    )
    exact = isinstance(protocol, LbfgsProtocol)
    words = f"{protocol.name}: {protocol.doc}" + (f", l2 {settings.linear_l2:g}" if exact else "")
    return accuracy(
        "linear",
        "linear probe",
        right.cpu(),
        data.test.keys,
        protocol=words,
        seeds=() if exact else measuring.seeds,
    )


def _top(count: int, logits: Tensor, measuring: Measuring, protocol: str) -> Number:
    """Return how often the right class is among the ``count`` likeliest."""
    test = measuring.measured.test
    right = (logits.topk(count, dim=1).indices == test.labels[:, None]).any(dim=1)
    title = "linear probe, penalty chosen" + (f", top {count}" if count > 1 else "")
    return accuracy(f"linear-top{count}", title, right[None], test.keys, protocol=protocol)


def _penalties(measuring: Measuring) -> Table:
    chosen = measuring.classifier.chosen
    rows = tuple(
        (f"{l2:g}", round(100 * share, 2), "chosen" if l2 == chosen.l2 else "")
        for l2, share in zip(PENALTIES, chosen.accuracies, strict=True)
    )
    return Table("Penalties tried", ("l2", "held-out accuracy, %", ""), rows, "No test image was looked at for this.")
