"""Linear probes against scikit-learn, a plain PyTorch loop, separable data and chance."""

import dataclasses
import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from ebclab.errors import DataError
from ebclab.evaluation import linear
from ebclab.evaluation.linear import FeatureSplit, linear_within, rate_at, train_layers
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
