"""The probes together, on scikit-learn's digits, against scikit-learn."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from ebclab.config.sections import EvaluationConfig
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import ConfigError, DataError
from ebclab.evaluation.answers import Score, wilson_interval
from ebclab.evaluation.evaluate import evaluate_encoder
from ebclab.evaluation.protocols import PROTOCOLS

PLAIN = Preprocessing(8, (0.0,), (1.0,))
CONFIG = EvaluationConfig(batch_size=100)


def pixel_scores(
    train: ImageSet, test: ImageSet, config: EvaluationConfig = CONFIG, **options: Any
) -> dict[str, Score]:
    """The scores of flattened pixels."""
    plain = Preprocessing(0, (0.0,) * train.images.shape[1], (1.0,) * train.images.shape[1])
    return evaluate_encoder(nn.Flatten(), train, test, plain, config, device="cpu", **options)


def as_numpy(images: ImageSet) -> tuple[np.ndarray, np.ndarray]:
    return (images.images.flatten(1).double() / 255).numpy(), images.labels.numpy()


def test_raw_pixels_equal_scikit_learn(digits: tuple[ImageSet, ImageSet]) -> None:
    scores = pixel_scores(*digits, only=("knn", "linear", "ebclr-knn"))
    (train_x, train_y), (test_x, test_y) = as_numpy(digits[0]), as_numpy(digits[1])
    cosine = KNeighborsClassifier(20, metric="cosine", weights=lambda distance: np.exp((1 - distance) / 0.1))
    euclidean = KNeighborsClassifier(20, weights="distance")
    scaler = StandardScaler().fit(train_x)
    logistic = LogisticRegression(C=1 / (1400 * 1e-3), tol=1e-7, max_iter=10_000)
    expected = {
        "knn": cosine.fit(train_x, train_y).score(test_x, test_y),
        "linear": logistic.fit(scaler.transform(train_x), train_y).score(scaler.transform(test_x), test_y),
        "ebclr-knn": euclidean.fit(train_x, train_y).score(test_x, test_y),
    }
    assert {name: score.value for name, score in scores.items()} == pytest.approx(expected, abs=1 / 397)


def test_a_protocol_with_randomness_is_repeated_from_the_seed_on(digits, monkeypatch):
    monkeypatch.setitem(PROTOCOLS, "vem-sgd", dataclasses.replace(PROTOCOLS["vem-sgd"], epochs=3))
    config = EvaluationConfig(linear_protocol="vem-sgd", linear_seeds=3)
    score = pixel_scores(*digits, config, only=["linear"], seed=5)["linear"]
    assert score.seeds == (5, 6, 7)
    assert score.value == pytest.approx(sum(score.per_seed) / 3)
    assert len(set(score.per_seed)) > 1
    again = pixel_scores(*digits, config, only=["linear"], seed=6)["linear"]
    assert again.per_seed[:2] == pytest.approx(score.per_seed[1:], abs=2 / 397)


@pytest.mark.parametrize(("of_training", "of_test"), [(3, 2), (2, 3)])
def test_classes_are_counted_in_both_sets(of_training: int, of_test: int) -> None:
    """Each class is one colour that a probe names without fail, and some of 20 neighbours are of other classes."""

    def colours(count: int) -> ImageSet:
        labels = torch.arange(count).repeat(12)
        images = torch.zeros(len(labels), 3, 2, 2, dtype=torch.uint8)
        images[torch.arange(len(labels)), labels] = 200
        return ImageSet("colours", images, labels, torch.arange(len(labels)), (), (0.3,) * 3, (0.4,) * 3)

    scores = pixel_scores(colours(of_training), colours(of_test), only=("knn", "linear", "ebclr-knn"))
    known = min(1.0, of_training / of_test)
    assert {name: score.value for name, score in scores.items()} == pytest.approx(dict.fromkeys(scores, known))


def test_of_fewer_images_than_neighbours_all_vote_and_the_score_says_how_many(
    digits: tuple[ImageSet, ImageSet],
) -> None:
    """A dataset that is named beside a run's own may be smaller than the neighbours chosen for that."""
    train, test = digits
    few = train.rows(torch.arange(9))
    scores = pixel_scores(few, test, only=("knn", "ebclr-knn"))
    assert scores["knn"].detail.startswith("kNN, 9 neighbours, ")
    assert scores["ebclr-knn"].detail.startswith("kNN, 9 Euclidean neighbours, ")
    assert (
        scores["knn"].value
        == pixel_scores(few, test, dataclasses.replace(CONFIG, knn_neighbours=9), only=["knn"])["knn"].value
    )


def test_features_are_computed_once_for_all_probes(digits: tuple[ImageSet, ImageSet]) -> None:
    seen = 0

    def encoder(images: Tensor) -> Tensor:
        nonlocal seen
        seen += len(images)
        return images.flatten(1)

    evaluate_encoder(encoder, *digits, PLAIN, CONFIG, device="cpu", only=("knn", "linear", "ebclr-knn"))
    assert seen == 1797


def test_scores_carry_interval_size_and_protocol_and_progress_names_what_is_under_way(digits):
    last: dict[str, tuple[int, int]] = {}
    scores = pixel_scores(*digits, on_progress=lambda done, total, what: last.update({what: (done, total)}))
    features = {"features of training images": (1400, 1400), "features of test images": (397, 397)}
    assert last == features | {"knn": (397, 397), "linear": (1, 1)}
    assert list(scores) == ["knn", "linear"]
    for name, score in scores.items():
        assert (score.name, score.num_images, score.seeds, score.std) == (name, 397, (), None)
        assert (score.low, score.high) == wilson_interval(score.value, 397)
    assert scores["knn"].detail == "kNN, 20 neighbours, votes exp(cosine / 0.1)"
    assert scores["linear"].detail == f"linear, lbfgs: {PROTOCOLS['lbfgs'].doc}, l2 0.001"


def unused(images: Tensor) -> Tensor:
    raise AssertionError("mistakes are found before any work")


@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_label_is_refused_before_any_work(digits: tuple[ImageSet, ImageSet], which: int) -> None:
    sets = list(digits)
    labels = sets[which].labels.clone()
    labels[3] = -1
    sets[which] = dataclasses.replace(sets[which], labels=labels)
    with pytest.raises(DataError, match=r"digits: .* label for every image, got 1 of"):
        evaluate_encoder(unused, *sets, PLAIN, CONFIG, device="cpu")


def test_unknown_names_are_refused_before_any_work(digits: tuple[ImageSet, ImageSet]) -> None:
    with pytest.raises(ConfigError, match=r"only: no such probe, got 'lineal'; did you mean linear\?"):
        evaluate_encoder(unused, *digits, PLAIN, CONFIG, device="cpu", only=("lineal",))
    config = EvaluationConfig(linear_protocol="moco")
    with pytest.raises(
        ConfigError, match=r"evaluation.linear_protocol: no such protocol, got 'moco'; did you mean moco-sgd"
    ):
        evaluate_encoder(unused, *digits, PLAIN, config, device="cpu")
