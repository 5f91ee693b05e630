"""The score watched during training."""

from dataclasses import replace
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from torch import nn

from ebclab.config.sections import EvaluationConfig, ViewsConfig
from ebclab.data.holdout import limit
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import DataError
from ebclab.evaluation.answers import table_of
from ebclab.evaluation.monitor import holdout_scores

PLAIN = Preprocessing(8, (0.0,), (1.0,))
CONFIG = EvaluationConfig(knn_neighbours=1)
VIEWS = ViewsConfig(recipe="none", crop_scale_min=0.5)


def holdout_knn(encoder: nn.Module, train: ImageSet, holdout: ImageSet, config: EvaluationConfig) -> float:
    return holdout_scores(encoder, train, holdout, PLAIN, config, VIEWS, device="cpu").by_name["holdout_knn"]


OBJECTIVES = get_args(get_type_hints(EvaluationConfig)["objective"])


@pytest.fixture(scope="module")
def parts() -> tuple[ImageSet, ImageSet]:
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels * 15, dtype=torch.uint8).view(-1, 1, 8, 8)
    whole = ImageSet("digits", images, torch.tensor(labels), 3 * torch.arange(1797), (), (0.0,), (1.0,))
    return whole.rows(torch.arange(1400)), whole.rows(torch.arange(1400, 1797))


@pytest.mark.parametrize("bank_limit", [0, 300, 5000])
def test_the_monitor_is_knn_of_held_out_images_against_the_bank(
    parts: tuple[ImageSet, ImageSet], bank_limit: int
) -> None:
    train, holdout = parts
    bank = limit(train, bank_limit)
    assert len(bank) == (300 if bank_limit == 300 else 1400)
    model = KNeighborsClassifier(1, metric="cosine").fit(bank.images.flatten(1).double().numpy(), bank.labels.numpy())
    expected = model.score(holdout.images.flatten(1).double().numpy(), holdout.labels.numpy())
    measured = holdout_knn(nn.Flatten(), train, holdout, replace(CONFIG, knn_bank_limit=bank_limit))
    assert measured == pytest.approx(expected, abs=1 / 397)


def test_the_bank_does_not_depend_on_the_order_of_the_images(parts: tuple[ImageSet, ImageSet]) -> None:
    train, holdout = parts
    shuffled = train.rows(torch.randperm(1400, generator=torch.Generator().manual_seed(0)))
    scores = [
        holdout_knn(nn.Flatten(), images, holdout, replace(CONFIG, knn_bank_limit=100)) for images in (train, shuffled)
    ]
    assert scores[0] == scores[1] < 1.0


def test_the_encoder_goes_on_training(parts: tuple[ImageSet, ImageSet]) -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten()).train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    for objective in OBJECTIVES:
        config = replace(CONFIG, knn_bank_limit=200, objective=objective)
        holdout_scores(net, *parts, PLAIN, config, VIEWS, device="cpu")
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in before.items())
    assert net.training


def test_missing_labels_and_too_few_images_are_one_sentence(parts: tuple[ImageSet, ImageSet]) -> None:
    train, holdout = parts
    unlabelled = replace(train, labels=torch.full_like(train.labels, -1))
    with pytest.raises(DataError, match=r"digits: .* label for every image, got 1,400 of 1,400 without"):
        holdout_knn(nn.Flatten(), unlabelled, holdout, CONFIG)
    with pytest.raises(DataError, match="at most the 5 available training images, got 20"):
        holdout_knn(nn.Flatten(), train, holdout, EvaluationConfig(knn_bank_limit=5))


def test_the_linear_objective_is_scikit_learns_logistic_regression(parts: tuple[ImageSet, ImageSet]) -> None:
    train, holdout = parts
    config = replace(CONFIG, objective="holdout_linear", linear_l2=1e-2, knn_bank_limit=0)
    scores = holdout_scores(nn.Flatten(), train, holdout, PLAIN, config, VIEWS, device="cpu").by_name
    x, held = (part.images.flatten(1).double().numpy() for part in (train, holdout))
    scaler = StandardScaler().fit(x)
    model = LogisticRegression(C=1 / (1400 * 1e-2), tol=1e-6, max_iter=1000)
    expected = model.fit(scaler.transform(x), train.labels.numpy()).score(scaler.transform(held), holdout.labels)
    assert scores["holdout_linear"] == pytest.approx(expected, abs=1 / 397)
    assert set(scores) == {"holdout_knn", "holdout_linear"}


def test_the_effective_rank_is_that_of_the_held_out_embeddings_and_needs_no_labels(
    parts: tuple[ImageSet, ImageSet],
) -> None:
    unlabelled = [replace(part, labels=torch.full_like(part.labels, -1)) for part in parts]
    config = replace(CONFIG, objective="effective_rank")
    scores = holdout_scores(nn.Flatten(), *unlabelled, PLAIN, config, VIEWS, device="cpu").by_name
    sigma = np.linalg.svd(unlabelled[1].images.flatten(1).double().numpy() / 255, compute_uv=False)
    share = sigma[sigma > 1e-9] / sigma.sum()
    assert scores == {"effective_rank": pytest.approx(np.exp(-(share * np.log(share)).sum()), rel=1e-4)}


def test_alignment_and_uniformity_are_better_where_views_agree_and_images_do_not(
    parts: tuple[ImageSet, ImageSet],
) -> None:
    config = replace(CONFIG, objective="alignment_uniformity")

    def measure(encoder: nn.Module, views: ViewsConfig) -> float:
        return holdout_scores(encoder, *parts, PLAIN, config, views, device="cpu").by_name["alignment_uniformity"]

    class Constant(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.ones(len(images), 4)

    still = ViewsConfig(recipe="none")
    assert measure(Constant(), VIEWS) == pytest.approx(0.0, abs=1e-5)  # all agree: both terms vanish
    unit = torch.nn.functional.normalize(parts[1].images.flatten(1).double(), dim=1)
    distances = torch.cdist(unit, unit).square()[~torch.eye(397, dtype=torch.bool)]
    expected = -float(torch.exp(-2 * distances).mean().log())  # views that do not move leave uniformity alone
    assert measure(nn.Flatten(), still) == pytest.approx(expected, rel=1e-4)
    assert measure(nn.Flatten(), VIEWS) < expected
    assert measure(nn.Flatten(), VIEWS) == measure(nn.Flatten(), VIEWS)


def test_the_answers_behind_the_objective_are_those_of_the_probe(parts: tuple[ImageSet, ImageSet]) -> None:
    train, holdout = parts
    measured = holdout_scores(nn.Flatten(), train, holdout, PLAIN, CONFIG, VIEWS, device="cpu")
    model = KNeighborsClassifier(1, metric="cosine").fit(train.images.flatten(1).numpy(), train.labels.numpy())
    expected = model.predict(holdout.images.flatten(1).numpy()) == holdout.labels.numpy()
    assert measured.answers is not None
    found = table_of([measured.answers])[0]
    assert found.mean() == pytest.approx(measured.by_name["holdout_knn"], abs=1e-12)
    assert np.abs(found - expected).sum() <= 2  # two bank images may be equally near but for rounding
    ranked = holdout_scores(
        nn.Flatten(), train, holdout, PLAIN, replace(CONFIG, objective="effective_rank"), VIEWS, device="cpu"
    )
    assert ranked.answers is None  # a rank has no value for a single image


def test_a_monitor_that_cannot_measure_says_what_it_looks_at(parts: tuple[ImageSet, ImageSet]) -> None:
    """The training part has all classes; the few of its images that are compared with have not."""
    config = replace(CONFIG, knn_bank_limit=8)
    sentence = (
        "monitor calibration, which looks at 8 images that are trained on, at most evaluation.knn_bank_limit, and 397 "
        "held out: labels: a classifier needs an image of every class"
    )
    with pytest.raises(DataError, match=sentence):
        holdout_scores(nn.Flatten(), *parts, PLAIN, config, VIEWS, device="cpu", monitors=("calibration",))
