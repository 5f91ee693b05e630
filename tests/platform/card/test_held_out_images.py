"""What a card measures knows nothing of the training images that it holds out: slow loops over all the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from made_up_card import made_up_measuring, made_up_set
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from ebclab.card.groups import out_of_distribution
from ebclab.card.images import MeasuredSet, OutsideSet
from ebclab.card.results import Findings
from ebclab.data.image_set import ImageSet

SIDE, NEIGHBOURS = 4, 50
Score = Callable[[Tensor, Tensor, Tensor], float]


@pytest.fixture(scope="module")
def data() -> MeasuredSet:
    """Training and test images, of which those that are held out lie where no other training image does."""
    made = made_up_set(noise=30.0)
    made.train.images[made.is_held_out] = 255 - made.train.images[made.is_held_out]
    return MeasuredSet(made.name, made.train, made.test)


@pytest.fixture(scope="module")
def outside(data: MeasuredSet) -> OutsideSet:
    """Test images turned negative: close to the images that are held out, far from the others."""
    images, labels, keys = 255 - data.test.images, data.test.labels, data.test.keys + 5_000_000
    return OutsideSet("negative", "near", ImageSet("negative", images, labels, keys, (), (0.4,), (0.25,)), data.test)


@pytest.fixture(scope="module")
def found(data: MeasuredSet, outside: OutsideSet) -> Findings:
    measuring = made_up_measuring(nn.Flatten(), data, side=SIDE)
    measuring.outside = (outside,)
    return out_of_distribution.measure(measuring)


def pixels(images: ImageSet) -> Tensor:
    return ((images.images.double() / 255 - 0.4) / 0.25).flatten(1)


def to_neighbour(fitted: Tensor, labels: Tensor, row: Tensor) -> float:
    apart = [float((row / row.norm() - each / each.norm()).norm()) for each in fitted]
    return sorted(apart)[NEIGHBOURS - 1]


def to_mean(fitted: Tensor, labels: Tensor, row: Tensor) -> float:
    means = {k: fitted[labels == k].mean(dim=0) for k in labels.unique().tolist()}
    apart = [each - means[k] for each, k in zip(fitted, labels.tolist(), strict=True)]
    inverse = torch.linalg.inv(sum(torch.outer(each, each) for each in apart) / len(apart))
    return min(float((row - mean) @ inverse @ (row - mean)) for mean in means.values())


@pytest.mark.parametrize(("detector", "score"), [("knn", to_neighbour), ("mahalanobis", to_mean)])
def test_detectors_of_outside_images_are_fitted_without_the_images_that_are_held_out(
    data: MeasuredSet, outside: OutsideSet, found: Findings, detector: str, score: Score
) -> None:
    def area(fitted: ImageSet) -> float:
        x = pixels(fitted)
        scores = [score(x, fitted.labels, row) for part in (outside.inside, outside.outside) for row in pixels(part)]
        return float(roc_auc_score(np.arange(len(scores)) >= len(outside.inside), scores))

    (number,) = (each for each in found.numbers if each.name == f"near-negative-{detector}-auroc")
    expected = area(data.parts[0])
    assert number.value == pytest.approx(expected, abs=1e-3)  # scores are in float32
    assert abs(area(data.train) - expected) > 0.02  # the images that are held out would have told
