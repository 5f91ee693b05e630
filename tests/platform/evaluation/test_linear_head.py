"""The penalty that is chosen, and its classifier, against scikit-learn's; of few labels, by cross-validation."""

import math

import pytest
import torch
from scipy.optimize import brentq
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ebclab.data.holdout import LabelList, label_list
from ebclab.data.image_set import ImageSet
from ebclab.errors import DataError
from ebclab.evaluation.linear import PENALTIES, few_labels_head, fit_head, num_folds, try_penalties


def plain(images: int, l2: float) -> LogisticRegression:
    return LogisticRegression(C=1 / (images * l2), tol=1e-10, max_iter=500, solver="newton-cholesky")


@pytest.mark.parametrize(
    ("size", "needed"),
    [
        (9, 6 * 3 * 8 * 9),  # float64 features: standardised, turned, and these with ones
        (2, 6 * ((8 + 4) * 3 + 3 * 8 * 2)),  # features and ones in both precisions; answers of two places, and logits
    ],
)
def test_a_classifier_that_does_not_fit_into_memory_is_refused_before_it_begins(monkeypatch, size, needed):
    x, y = torch.randn(6, size, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 2
    monkeypatch.setattr("ebclab.evaluation.linear.free_bytes", lambda device: needed)
    fit_head(x, y, 2, 1e-2)
    monkeypatch.setattr("ebclab.evaluation.linear.free_bytes", lambda device: needed - 1)
    with pytest.raises(DataError, match=f"2 classes on {size} features of 6 images do not fit .* at least, .* free;"):
        fit_head(x, y, 2, 1e-2)


def test_each_penalty_has_the_accuracy_and_the_likelihood_of_scikit_learns_classifier() -> None:
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels[:, 8:24], dtype=torch.float32), torch.tensor(labels)  # two rows of pixels: not all right
    train, held_out = (x[:400], y[:400]), (x[400:800], y[400:800])
    told: list[tuple[int, int, str]] = []
    tried = try_penalties(train, held_out, 10, lambda *step: told.append(step))
    mean, std = x[:400].double().mean(dim=0), x[:400].double().std(dim=0, correction=0)
    scaled = [((part.double() - mean) / torch.where(std > 0, std, 1.0)).numpy() for part in (train[0], held_out[0])]
    models = [plain(400, l2).fit(scaled[0], train[1].numpy()) for l2 in PENALTIES]
    shares = [float(model.score(scaled[1], held_out[1].numpy())) for model in models]
    losses = [-model.predict_log_proba(scaled[1])[range(400), held_out[1]].mean() for model in models]
    assert len(set(shares)) > 2
    assert list(tried.accuracies) == shares
    assert list(tried.losses) == pytest.approx(losses, rel=1e-3)
    head = tried.most_accurate
    assert (head.l2, tried.likeliest.l2) == tuple(
        PENALTIES[numbers.index(best(numbers))] for numbers, best in ((shares, max), (losses, min))
    )
    alone = fit_head(*train, 10, head.l2)  # begins at 0, not at the next stronger penalty
    torch.testing.assert_close(head.logits(held_out[0].double()), alone.logits(held_out[0].double()), rtol=0, atol=1e-2)
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
    assert told[-1][:2] == (6, 6)
    assert len(told) > 2 * len(PENALTIES)  # a long search reports after each step, not only when it ends


def test_of_equally_accurate_classifiers_the_likeliest_has_the_closed_forms_penalty() -> None:
    """With a feature of -1 or 1 that says the class, l2 d = 1 / (1 + exp(d)) for the difference d of both weights."""
    x, y = torch.tensor([[-1.0], [1.0]]).repeat(50, 1), torch.tensor([0, 1]).repeat(50)
    wrong = torch.arange(100) < 10
    tried = try_penalties((x, y), (x, torch.where(wrong, 1 - y, y)), 2)
    margins = [brentq(lambda d, l2=l2: l2 * d - 1 / (1 + math.exp(d)), 0, 20) for l2 in PENALTIES]
    losses = [0.9 * math.log1p(math.exp(-d)) + 0.1 * math.log1p(math.exp(d)) for d in margins]
    assert tried.accuracies == (0.9,) * 6
    assert list(tried.losses) == pytest.approx(losses, rel=1e-3)
    assert tried.most_accurate.l2 == 1.0
    assert tried.likeliest.l2 == PENALTIES[losses.index(min(losses))] == 0.1  # d is nearest to log 9


def listed(counts: list[int], percent: int) -> tuple[torch.Tensor, torch.Tensor, LabelList]:
    """Features, labels and list of made-up images whose classes overlap."""
    labels = torch.cat([torch.full((count,), label) for label, count in enumerate(counts)])
    keys = torch.arange(len(labels))
    images = ImageSet("made-up", torch.zeros(len(labels), 1, 1, 1).byte(), labels, keys, (), (0.0,), (1.0,))
    x = torch.randn(len(labels), 4, generator=torch.Generator().manual_seed(0)) + labels[:, None]
    found = label_list(images, percent, 0, len(counts))
    return x[found.rows], labels[found.rows], found


def test_the_penalty_is_that_of_scikit_learns_cross_validation() -> None:
    x, y, labels = listed([60, 60, 60], 20)
    found = few_labels_head(x, y, labels, usual_l2=1e-3)
    folds = PredefinedSplit((labels.rank % 5).numpy())
    counts = []
    for l2 in PENALTIES:
        parts = sorted({int((labels.rank % 5 != number).sum()) for number in range(5)})
        right = 0
        for size in parts:  # the penalty is for a mean loss, so C depends on how many images are fitted
            model = make_pipeline(StandardScaler(), plain(size, l2))
            predicted = cross_val_predict(model, x.double().numpy(), y.numpy(), cv=folds)
            of_size = torch.tensor([int((labels.rank % 5 != number % 5).sum()) == size for number in labels.rank])
            right += int(((torch.from_numpy(predicted) == y) & of_size).sum())
        counts.append(right)
    assert len(set(counts)) > 1
    assert found.l2 == PENALTIES[counts.index(max(counts))]


def test_the_classifier_is_fitted_on_the_whole_list_with_the_chosen_penalty() -> None:
    x, y, labels = listed([40, 40], 25)
    found = few_labels_head(x, y, labels, usual_l2=1e-3)
    expected = fit_head(x, y, 2, found.l2)
    assert torch.equal(found.weights, expected.weights)
    assert torch.equal(found.biases, expected.biases)


def test_a_single_image_of_a_class_leaves_nothing_to_choose_on() -> None:
    x, y, labels = listed([10, 10, 10], 10)
    found = few_labels_head(x, y, labels, usual_l2=0.25)
    assert labels.counts == (1, 1, 1)
    assert found.l2 == 0.25


@pytest.mark.parametrize(
    ("counts", "percent", "expected"), [([90] * 3, 10, 5), ([30] * 3, 10, 3), ([90, 90, 2], 20, 2)]
)
def test_the_smallest_class_says_into_how_many_parts_a_list_is_cut(counts, percent, expected):
    assert num_folds(listed(counts, percent)[2]) == expected
