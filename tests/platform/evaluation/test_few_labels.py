"""The penalty for a few labels: scikit-learn's own cross-validation gives the same shares."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ebclab.data.holdout import LabelList, label_list
from ebclab.data.image_set import ImageSet
from ebclab.evaluation.linear_head import PENALTIES, few_labels_head, fit_head, num_folds
from ebclab.evaluation.protocols import LBFGS


def listed(counts: list[int], percent: int) -> tuple[torch.Tensor, torch.Tensor, LabelList]:
    """Features, labels and list of made-up images whose classes overlap."""
    labels = torch.cat([torch.full((count,), label) for label, count in enumerate(counts)])
    keys = torch.arange(len(labels))
    images = ImageSet("made-up", torch.zeros(len(labels), 1, 1, 1).byte(), labels, keys, (), (0.0,), (1.0,))
    x = torch.randn(len(labels), 4, generator=torch.Generator().manual_seed(0)) + labels[:, None]
    found = label_list(images, percent, 0, len(counts))
    return x[found.rows], labels[found.rows], found


def test_the_shares_are_those_of_scikit_learns_cross_validation() -> None:
    x, y, labels = listed([60, 60, 60], 20)
    found = few_labels_head(LBFGS, x, y, labels, usual_l2=1e-3)
    folds = PredefinedSplit((labels.rank % 5).numpy())
    for l2, share in zip(PENALTIES, found.chosen.accuracies, strict=True):
        parts = sorted({int((labels.rank % 5 != number).sum()) for number in range(5)})
        right = 0
        for size in parts:  # the penalty is for a mean loss, so C depends on how many images are fitted
            model = make_pipeline(StandardScaler(), LogisticRegression(C=1 / (size * l2), tol=1e-8, max_iter=20_000))
            predicted = cross_val_predict(model, x.double().numpy(), y.numpy(), cv=folds)
            of_size = torch.tensor([int((labels.rank % 5 != number % 5).sum()) == size for number in labels.rank])
            right += int(((torch.from_numpy(predicted) == y) & of_size).sum())
        assert share == pytest.approx(right / len(y), abs=1e-12)
    assert found.chosen.l2 == PENALTIES[found.chosen.accuracies.index(max(found.chosen.accuracies))]


def test_the_classifier_is_fitted_on_the_whole_list_with_the_chosen_penalty() -> None:
    x, y, labels = listed([40, 40], 25)
    found = few_labels_head(LBFGS, x, y, labels, usual_l2=1e-3)
    expected = fit_head(LBFGS, x, y, 2, found.chosen.l2)
    assert torch.equal(found.head.weights, expected.weights)
    assert torch.equal(found.head.biases, expected.biases)


def test_a_single_image_of_a_class_leaves_nothing_to_choose_on() -> None:
    x, y, labels = listed([10, 10, 10], 10)
    found = few_labels_head(LBFGS, x, y, labels, usual_l2=0.25)
    assert labels.counts == (1, 1, 1)
    assert found.chosen == (0.25, ())
    assert found.head.l2 == 0.25


@pytest.mark.parametrize(
    ("counts", "percent", "expected"), [([90] * 3, 10, 5), ([30] * 3, 10, 3), ([90, 90, 2], 20, 2)]
)
def test_the_smallest_class_says_into_how_many_parts_a_list_is_cut(
    counts: list[int], percent: int, expected: int
) -> None:
    assert num_folds(listed(counts, percent)[2]) == expected
