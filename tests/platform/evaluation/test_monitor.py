"""The score watched during training."""

import dataclasses

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from ebclab.config.sections import EvaluationConfig
from ebclab.data.holdout import limit
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import DataError
from ebclab.evaluation.monitor import holdout_knn

PLAIN = Preprocessing(8, (0.0,), (1.0,))
CONFIG = EvaluationConfig(knn_neighbours=1)


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
    measured = holdout_knn(nn.Flatten(), train, holdout, PLAIN, CONFIG, device="cpu", bank_limit=bank_limit)
    assert measured == pytest.approx(expected, abs=1 / 397)


def test_the_bank_does_not_depend_on_the_order_of_the_images(parts: tuple[ImageSet, ImageSet]) -> None:
    train, holdout = parts
    shuffled = train.rows(torch.randperm(1400, generator=torch.Generator().manual_seed(0)))
    scores = [
        holdout_knn(nn.Flatten(), images, holdout, PLAIN, CONFIG, device="cpu", bank_limit=100)
        for images in (train, shuffled)
    ]
    assert scores[0] == scores[1] < 1.0


def test_the_encoder_goes_on_training(parts: tuple[ImageSet, ImageSet]) -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten()).train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    holdout_knn(net, *parts, PLAIN, CONFIG, device="cpu", bank_limit=50)
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in before.items())
    assert net.training


def test_missing_labels_and_too_few_images_are_one_sentence(parts: tuple[ImageSet, ImageSet]) -> None:
    train, holdout = parts
    unlabelled = dataclasses.replace(train, labels=torch.full_like(train.labels, -1))
    with pytest.raises(DataError, match=r"digits: .* label for every image, got 1,400 of 1,400 without"):
        holdout_knn(nn.Flatten(), unlabelled, holdout, PLAIN, CONFIG, device="cpu")
    with pytest.raises(DataError, match="must not exceed the 5 training images at hand, got 20"):
        holdout_knn(nn.Flatten(), train, holdout, PLAIN, EvaluationConfig(), device="cpu", bank_limit=5)
