"""Accuracies of a card on made-up images."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score, top_k_accuracy_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from ebclab.card.groups import calibration, out_of_distribution
from ebclab.card.groups.classification import measure
from ebclab.card.images import MeasuredSet, OutsideSet
from ebclab.card.measuring import CardOptions
from ebclab.card.subject import Subject
from ebclab.config.sections import EvaluationConfig
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.sources.load import load_split
from ebclab.evaluation import linear
from ebclab.evaluation.linear import PENALTIES
from ebclab.evaluation.protocols import PROTOCOLS, EpochProtocol
from energy_contrast.classifier import Classifier

DIGITS = MeasuredSet(
    "digits",
    load_split("digits", None, "train").rows(torch.arange(200)),
    load_split("digits", None, "test").rows(torch.arange(200)),
)
PIXELS = Subject("plain", "plain", nn.Flatten(), Preprocessing(8, (0.0,), (1.0,)), 1, "pixels", "plain")
OF_STRIPES: Any = SimpleNamespace(config=SimpleNamespace(data=SimpleNamespace(name="stripes"), method=None))


class Bright(nn.Module, Classifier):
    """Says row, column or neither by where images are brightest."""

    num_classes = 3

    def classify(self, images: Tensor) -> Tensor:
        row, column = images[:, 0, 2].mean(dim=1), images[:, 0, :, 3].mean(dim=1)
        return torch.stack([row, column, torch.zeros_like(row)], dim=1)


def test_a_method_that_classifies_is_measured_on_its_own_dataset_alone(make, subject, measured):
    numbers = []
    for data in (measured, replace(measured, name="another")):
        measuring = make(subject=replace(subject, trained=OF_STRIPES), measured=data)
        measuring.__dict__["method"] = Bright()
        numbers.append({number.name: number for number in measure(measuring).numbers})
    assert "own-classifier" not in numbers[1]
    pixels = (measured.test.images.float() / 255 - 0.5) / 0.25
    right = sum(
        int(Bright().classify(image[None]).argmax()) == int(label)
        for image, label in zip(pixels, measured.test.labels, strict=True)
    )
    assert numbers[0]["own-classifier"].value == pytest.approx(right / 90)
    assert right >= 45  # better than chance


def test_calibration_and_outside_images_know_the_methods_own_probabilities(make, subject, measured):
    dark = replace(measured.test, images=measured.test.images // 2, keys=measured.test.keys + 5_000)
    options = CardOptions(replace(EvaluationConfig(), knn_neighbours=5), seeds=1, bins=7)
    outside = (OutsideSet("dark", "near", dark, measured.test),)
    measuring = make(subject=replace(subject, trained=OF_STRIPES), outside=outside, options=options)
    measuring.__dict__["method"] = Bright()
    p, q = (
        Bright().classify((part.images.double() / 255 - 0.5) / 0.25).softmax(dim=1).numpy()
        for part in (measured.test, dark)
    )
    y, bins = measured.test.labels.numpy(), {7: np.zeros((7, 3)), 20: np.zeros((20, 3))}
    for row, label in zip(p, y, strict=True):
        for count, sums in bins.items():
            sums[min(int(row.max() * count), count - 1)] += (1, row.max(), row.argmax() == label)
    numbers = {number.name: number.value for number in calibration.measure(measuring).numbers}
    for count, sums in bins.items():
        gaps = np.abs(sums[:, 2] - sums[:, 1])
        assert numbers[f"ece-{count}-own"] == pytest.approx(gaps.sum() / 90, abs=1e-6)
        assert numbers[f"mce-{count}-own"] == pytest.approx((gaps / sums[:, 0].clip(1)).max(), abs=1e-6)
    assert numbers["nll-own"] == pytest.approx(-np.log(p[np.arange(90), y]).mean(), rel=1e-6)
    assert {"ece-7", "adaptive-ece-7", "classwise-ece-7-own", "ece-15"} <= numbers.keys()
    found = {number.name: number.value for number in out_of_distribution.measure(measuring).numbers}
    wanted = roc_auc_score([0] * 90 + [1] * 90, -np.concatenate([p, q]).max(axis=1))
    assert found["near-dark-own-max-probability-auroc"] == pytest.approx(wanted, abs=1e-3)  # float32 ties
    assert found["near-dark-own-max-probability-auroc"] != found["near-dark-max-probability-auroc"]


def test_accuracies_have_the_penalty_of_best_held_out_accuracy_and_probabilities_that_of_least_nll(make: Any) -> None:
    numbers = {number.name: number for number in measure(make(subject=PIXELS, measured=DIGITS)).numbers}
    x, test_x = (part.images.flatten(1).double().numpy() / 255 for part in (DIGITS.train, DIGITS.test))
    y, held = DIGITS.train.labels.numpy(), DIGITS.is_held_out.numpy()

    def fitted(rows: NDArray[np.bool_], l2: float) -> Pipeline:
        model = LogisticRegression(C=1 / (rows.sum() * l2), tol=1e-10, max_iter=500, solver="newton-cholesky")
        return make_pipeline(StandardScaler(), model).fit(x[rows], y[rows])

    best = max(PENALTIES, key=lambda l2: fitted(~held, l2).score(x[held], y[held]))  # the first of equals
    logits = fitted(held | ~held, best).decision_function(test_x)
    for count in (1, 5):
        expected = top_k_accuracy_score(DIGITS.test.labels.numpy(), logits, k=count)
        assert numbers[f"linear-top{count}"].value == pytest.approx(expected, abs=1e-12)
    assert numbers["linear-top1"].value < numbers["linear-top5"].value < 1
    every = {l2: fitted(~held, l2) for l2 in PENALTIES}

    def nll(l2: float, images: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
        return float(-every[l2].predict_log_proba(images)[range(len(labels)), labels].mean())

    likeliest = min(PENALTIES, key=lambda l2: nll(l2, x[held], y[held]))
    assert likeliest != best  # equal accuracies, other probabilities
    calibrated = {each.name: each.value for each in calibration.measure(make(subject=PIXELS, measured=DIGITS)).numbers}
    assert calibrated["nll"] == pytest.approx(nll(likeliest, test_x, DIGITS.test.labels.numpy()), rel=1e-3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_probe_of_any_protocol_is_trained_once_for_top_1_and_top_5(make, monkeypatch, protocol):
    if isinstance(PROTOCOLS[protocol], EpochProtocol):
        monkeypatch.setitem(PROTOCOLS, protocol, replace(PROTOCOLS[protocol], epochs=12))
    options = CardOptions(replace(EvaluationConfig(), knn_neighbours=5, linear_protocol=protocol), seeds=2)
    trained = []
    for name in ("train_layers", "fit_head"):
        function = getattr(linear, name)
        monkeypatch.setattr(
            linear, name, lambda *given, _do=function, **more: trained.append(_do(*given, **more)) or trained[-1]
        )
    numbers = {each.name: each for each in measure(make(subject=PIXELS, measured=DIGITS, options=options)).numbers}
    (layer,) = trained
    x = DIGITS.test.images.flatten(1).float() / 255
    logits = (layer.logits(x.double())[None] if protocol == "lbfgs" else x @ layer[0] + layer[1]).numpy()
    for top, name in ((1, "linear"), (5, "top5")):
        expected = [
            top_k_accuracy_score(DIGITS.test.labels.numpy(), each, k=top, labels=np.arange(10)) for each in logits
        ]
        assert numbers[name].value == pytest.approx(np.mean(expected), abs=0.003)  # one of 400 may tie
    assert numbers["linear"].value < numbers["top5"].value


def test_there_is_no_top_5_of_three_classes(make: Any) -> None:
    assert [number.name for number in measure(make()).numbers] == ["knn", "linear", "linear-top1"]
