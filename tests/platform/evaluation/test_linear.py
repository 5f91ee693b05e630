"""Linear probes and the penalty that is chosen, against scikit-learn, a plain PyTorch loop, and closed forms."""

import dataclasses
import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from scipy.optimize import brentq
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from ebclab.data.holdout import LabelList, label_list
from ebclab.data.image_set import ImageSet
from ebclab.errors import DataError
from ebclab.evaluation import linear
from ebclab.evaluation.linear import (
    PENALTIES,
    FeatureSplit,
    few_labels_head,
    fit_head,
    linear_within,
    num_folds,
    rate_at,
    train_layers,
    try_penalties,
)
from ebclab.evaluation.progress import silent
from ebclab.evaluation.protocols import PROTOCOLS, EpochProtocol, SolvedProtocol

EPOCH_PROTOCOLS = [name for name, protocol in PROTOCOLS.items() if isinstance(protocol, EpochProtocol)]
SHORT = EpochProtocol("short", "", "", "", "sgd", learning_rate=0.5, batch_size=32, epochs=3, schedule="cosine")


def linear_answers(protocol: str, *data: Tensor, num_classes: int, top: int = 1, **options: Any) -> Tensor:
    """Return whether the label is among the ``top`` largest logits, (S, m)."""
    split = FeatureSplit(*data, torch.arange(len(data[2])), num_classes)
    return linear_within(PROTOCOLS[protocol], split, tops=(top,), **options)[0]


def linear_accuracies(*data: Any, **options: Any) -> list[float]:
    """Return the share of right answers, one a seed."""
    accuracies: list[float] = linear_answers(*data, **options).double().mean(dim=1).tolist()
    return accuracies


def blobs(spread: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return 300 training and 700 test points around four far corners."""
    draw = torch.Generator().manual_seed(1)
    labels = torch.arange(1000) % 4
    points = torch.eye(4)[labels] + spread * torch.randn(1000, 4, generator=draw)
    return points[:300], labels[:300], points[300:], labels[300:]


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels, dtype=torch.float32), torch.tensor(labels)
    return x[:1400], y[:1400], x[1400:], y[1400:]


@pytest.fixture
def shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every protocol's settings but for the epochs: 20 are enough for toy data."""
    for name in EPOCH_PROTOCOLS:
        monkeypatch.setitem(PROTOCOLS, name, dataclasses.replace(PROTOCOLS[name], epochs=20))


@pytest.mark.parametrize(("sums", "count", "l2"), [(1, 1000, 1e-3), (1, 500, 1e-5), (2, 500, 1e-4), (2, 1000, 1e-5)])
def test_lbfgs_is_the_solution_where_features_are_ill_conditioned(sums: int, count: int, l2: float) -> None:
    """Running sums of pixels, whose neighbours are nearly equal, against Newton's method to a gradient of 1e-10."""
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels, dtype=torch.float32), torch.tensor(labels)
    for _ in range(sums):
        x = x.cumsum(dim=1)
    mean, std = linear.moments(x[:count])
    train, test = (((part.double() - mean) / std).numpy() for part in (x[:count], x[count:]))
    exact = LogisticRegression(C=1 / (count * l2), tol=1e-10, max_iter=500, solver="newton-cholesky")
    expected = exact.fit(train, y[:count].numpy()).score(test, y[count:].numpy())
    data = x[:count], y[:count], x[count:], y[count:]
    assert linear_accuracies("lbfgs", *data, num_classes=10, seeds=(), l2=l2) == [expected]


def test_moments_are_scikit_learns_and_constant_columns_keep_their_scale() -> None:
    draw = torch.Generator().manual_seed(0)
    train = torch.randn(50, 4, generator=draw) * torch.tensor([1.0, 1e-3, 100.0, 0.0]) + 0.1
    scaler = StandardScaler().fit(train.double().numpy())
    for mine, theirs in zip(linear.moments(train), (scaler.mean_, scaler.scale_), strict=True):
        torch.testing.assert_close(mine, torch.tensor(theirs), rtol=1e-9, atol=1e-12)


def test_a_fit_cut_short_is_logged_and_a_converged_one_is_not(digits, monkeypatch, caplog):
    linear_accuracies("lbfgs", *digits, num_classes=10, seeds=(), l2=1e-3)
    assert caplog.records == []
    monkeypatch.setattr(linear, "LBFGS", dataclasses.replace(linear.LBFGS, max_iterations=3))
    linear_accuracies("lbfgs", *digits, num_classes=10, seeds=(), l2=1e-3)
    (record,) = caplog.records
    assert record.name == "ebclab.evaluation"
    assert "not converged after 3 of at most 3 iterations" in record.getMessage()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("order", ["once", "every-epoch"])
def test_layers_equal_a_plain_pytorch_loop(optimizer: str, order: str) -> None:
    protocol = dataclasses.replace(SHORT, optimizer=optimizer, order=order, learning_rate=0.05)
    x, y, _, _ = blobs(0.5)
    weights, biases = train_layers(protocol, x, y, 4, (7, 8), silent)
    for row, seed in enumerate((7, 8)):
        layer, _ = plain_loop(protocol, x, y, seed)
        torch.testing.assert_close(weights[row], layer.weight.detach().T, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(biases[row, 0], layer.bias.detach(), rtol=1e-4, atol=1e-5)


def test_a_seed_is_trained_until_its_loss_stalls_whatever_others_do(caplog: pytest.LogCaptureFixture) -> None:
    protocol = PROTOCOLS["flatnce-adam"]
    assert isinstance(protocol, EpochProtocol)
    x, y, _, _ = blobs(0.5)
    fast = dataclasses.replace(protocol, learning_rate=0.05, batch_size=64)
    weights, _ = train_layers(fast, x, y, 4, (7, 8), silent)
    ends = []
    for row, seed in enumerate((7, 8)):
        layer, losses = plain_loop(fast, x, y, seed)
        torch.testing.assert_close(weights[row], layer.weight.detach().T, rtol=1e-3, atol=1e-4)
        ends.append(len(losses))
    assert ends[0] != ends[1]
    model = LogisticRegression(C=1e8, max_iter=10_000, tol=1e-8).fit(x.numpy(), y.numpy())
    least = -model.predict_log_proba(x.numpy())[torch.arange(len(y)), y].mean()
    found = nn.functional.cross_entropy(x @ weights[0] + train_layers(fast, x, y, 4, (7,), silent)[1][0], y)
    assert least <= float(found) < least + 0.01
    assert caplog.records == []
    train_layers(dataclasses.replace(fast, epochs=11), x, y, 4, (7,), silent)
    assert "flatnce-adam: 1 of 1 seeds not converged after 11 epochs" in caplog.text


def test_a_seed_that_has_converged_is_not_taken_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = 0

    def step(layer: list[Tensor], optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
        nonlocal epochs
        epochs += 1
        for part in layer:
            part.data.fill_(epochs)
        return len(y[0]) * torch.tensor([1.0 if epochs <= 11 else 0.5 / epochs, max(5.0 - epochs / 10, 2.0)])

    monkeypatch.setattr(linear, "_step", step)
    protocol = dataclasses.replace(SHORT, tolerance=1e-3, epochs=100)
    found = train_layers(protocol, torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64), 1, (7, 8), silent)
    # the first stalls from epochs 1 to 11; the second is 2 from epoch 30 on
    assert (epochs, [part.flatten().tolist() for part in found]) == (40, [[11.0, 40.0]] * 2)


def plain_loop(protocol: EpochProtocol, x: Tensor, y: Tensor, seed: int) -> tuple[nn.Linear, list[float]]:
    """Train one nn.Linear with torch's own loss, optimizer and cosine schedule, from the same draws; with losses."""
    generator = torch.Generator().manual_seed(seed)
    layer = nn.Linear(4, 4)
    layer.weight.data = torch.empty(4, 4).uniform_(-0.5, 0.5, generator=generator).T  # 1 / sqrt(4)
    layer.bias.data = torch.empty(4).uniform_(-0.5, 0.5, generator=generator)
    kinds = {"sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9), "adam": lambda p: torch.optim.Adam(p, 0.05)}
    optimizer = kinds[protocol.optimizer](layer.parameters())
    steps = math.ceil(len(x) / protocol.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, protocol.epochs * steps)
    order = torch.randperm(len(x), generator=generator)
    losses: list[float] = []
    for epoch in range(protocol.epochs):
        if epoch > 0 and protocol.order == "every-epoch":
            order = torch.randperm(len(x), generator=generator)
        total = 0.0
        for rows in order.split(protocol.batch_size):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(layer(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
            if protocol.schedule == "cosine":
                schedule.step()
        losses.append(total / len(x))
        if protocol.tolerance and len(losses) > 10 and losses[-11] - losses[-1] < protocol.tolerance:
            break
    return layer, losses


def test_a_rate_per_256_images_follows_the_batch_that_fits() -> None:
    x, y, _, _ = blobs(0.5)
    scaled = dataclasses.replace(SHORT, scale_rate=True, batch_size=4096)  # 300 rows: one step an epoch
    plain = dataclasses.replace(SHORT, learning_rate=SHORT.learning_rate * 300 / 256, batch_size=300)
    assert torch.equal(train_layers(scaled, x, y, 4, (0,), silent)[0], train_layers(plain, x, y, 4, (0,), silent)[0])


def test_moco_starts_from_small_weights_and_no_bias() -> None:
    still = dataclasses.replace(PROTOCOLS["moco-sgd"], learning_rate=0.0, epochs=1)
    weights, biases = train_layers(still, torch.ones(10, 5_000), torch.arange(10) % 2, 2, (0,), silent)
    assert weights.std().item() == pytest.approx(0.01, rel=0.03)  # 10,000 draws: standard error 0.7 %
    assert abs(weights.mean().item()) < 5e-4
    assert biases.count_nonzero() == 0


def test_schedules_at_their_turning_points() -> None:
    steps = [rate_at(PROTOCOLS["moco-sgd"], epoch) for epoch in (0, 59.99, 60, 79.99, 80, 99)]
    assert steps == [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]
    cosine = [rate_at(PROTOCOLS["vem-sgd"], epoch) for epoch in (0, 50, 100, 150, 200)]
    assert cosine == pytest.approx([1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0], abs=1e-12)
    assert {rate_at(PROTOCOLS["ebclr-adam"], epoch) for epoch in range(200)} == {1.0}


@pytest.mark.usefixtures("shortened")
@pytest.mark.parametrize("protocol", EPOCH_PROTOCOLS)
def test_a_seed_gives_the_same_alone_and_beside_others(protocol: str) -> None:
    data = blobs(0.6)
    together = linear_accuracies(protocol, *data, num_classes=4, seeds=(3, 4), l2=0.1)
    alone = [linear_accuracies(protocol, *data, num_classes=4, seeds=(seed,), l2=0.1)[0] for seed in (3, 4)]
    assert together == pytest.approx(alone, abs=2 / 700)
    assert together == linear_accuracies(protocol, *data, num_classes=4, seeds=(3, 4), l2=0.1)


@pytest.mark.usefixtures("shortened")
def test_progress_counts_epochs() -> None:
    seen: list[tuple[int, int, str]] = []
    linear_accuracies(
        "vem-sgd", *blobs(0.1), num_classes=4, seeds=(0,), l2=0.1, on_progress=lambda *step: seen.append(step)
    )
    assert seen == [(epoch, 20, "linear") for epoch in range(1, 21)]


@pytest.mark.parametrize("protocol", ["lbfgs", "vem-sgd"])
def test_one_class_is_one_sentence(protocol: str) -> None:
    x, y = torch.randn(8, 2), torch.full((8,), 3)
    with pytest.raises(DataError, match="at least two classes, got only class 3"):
        linear_accuracies(protocol, x, y, x, y, num_classes=4, seeds=(0,), l2=0.1)


def test_every_protocol_says_where_it_comes_from() -> None:
    for name, protocol in PROTOCOLS.items():
        assert protocol.name == name
        assert protocol.doc
        assert protocol.source
        assert isinstance(protocol, SolvedProtocol) == (protocol.departs == "")


@pytest.mark.parametrize("protocol", ["lbfgs", "flatclr-sgd"])
def test_more_named_classes_are_right_more_often_and_all_of_them_always(protocol: str) -> None:
    data = blobs(spread=3.0)
    count = int(data[1].max()) + 1
    right = [
        linear_answers(protocol, *data, num_classes=count, seeds=[0], l2=1e-3, top=top) for top in range(1, count + 2)
    ]
    for fewer, more in pairwise(right):
        assert (fewer <= more).all()
    assert right[0].double().mean() < 1
    assert right[count - 1].all()
    assert right[count].all()


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
