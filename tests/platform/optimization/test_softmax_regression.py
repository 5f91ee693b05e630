"""The minimum of multinomial logistic regression against scikit-learn's Newton method, and from anywhere."""

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from ebclab.optimization import softmax_regression
from ebclab.optimization.softmax_regression import Minimum, SoftmaxRegression


def digits(count: int, sums: int, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return standardised pixels, summed along each image ``sums`` times so that neighbours are nearly equal."""
    pixels, labels = load_digits(return_X_y=True)
    x = torch.tensor(pixels[:count])
    for _ in range(sums):
        x = x.cumsum(dim=1)
    spread = x.std(dim=0, correction=0)
    return (x - x.mean(dim=0)) / torch.where(spread > 0, spread, 1.0), torch.tensor(labels[:count]) % num_classes


def minimum(regression: SoftmaxRegression, l2: float, start: tuple[Tensor, Tensor] | None = None) -> Minimum:
    return regression.minimum(l2, tolerance=1e-3 * min(l2, 1e-3), max_steps=100, start=start)


def scikit_learns(x: Tensor, y: Tensor, l2: float) -> tuple[Tensor, Tensor]:
    """Return weights and biases to a gradient of 1e-10; of two classes those of the second against the first."""
    model = LogisticRegression(C=1 / (len(x) * l2), tol=1e-10, max_iter=500, solver="newton-cholesky")
    model.fit(x.numpy(), y.numpy())
    return torch.from_numpy(model.coef_.T.copy()), torch.from_numpy(model.intercept_.copy())


@pytest.mark.parametrize(
    ("count", "sums", "num_classes", "l2"),
    [(600, 0, 10, 1e-2), (600, 2, 10, 1e-4), (600, 2, 2, 1e-5), (40, 0, 10, 1e-3), (600, 0, 10, 10.0)],
)
def test_weights_are_those_of_scikit_learn(count, sums, num_classes, l2, monkeypatch):
    """They lie within |gradient| / l2 of the minimum, which is 1e-3 of a component; 40 images are fewer than pixels."""
    x, y = digits(count, sums, num_classes)
    weights, biases = scikit_learns(x, y, l2)
    for leading in (2_048, 100, 1):  # all second derivatives, of 10 directions, of biases alone
        monkeypatch.setattr(softmax_regression, "LEADING", leading)
        found = minimum(SoftmaxRegression(x, y, num_classes), l2)
        assert float(found.biases.sum()) == pytest.approx(0, abs=1e-12)
        mine, free = found.weights, found.biases
        if num_classes == 2:
            mine, free = mine[:, 1:] - mine[:, :1], free[1:] - free[:1]
        torch.testing.assert_close(mine, weights, rtol=0, atol=2e-3)
        torch.testing.assert_close(free, biases, rtol=0, atol=2e-2)  # no penalty holds them: the loss bends less there
        if num_classes == 10:
            assert torch.equal((x @ mine + free).argmax(dim=1), (x @ weights + biases).argmax(dim=1))


def test_the_search_ends_at_the_same_place_wherever_it_begins() -> None:
    x, y = digits(600, 0, 10)
    regression = SoftmaxRegression(x, y, 10)
    cold = minimum(regression, 1e-3)
    draw = torch.Generator().manual_seed(0)
    far = torch.randn(64, 10, generator=draw, dtype=torch.float64), torch.full((10,), 5.0, dtype=torch.float64)
    for start in (far, (minimum(regression, 1e-2).weights, cold.biases)):
        warm = minimum(regression, 1e-3, start)
        torch.testing.assert_close(warm.weights, cold.weights, rtol=0, atol=2e-3)
    again = minimum(regression, 1e-3, (cold.weights, cold.biases))
    assert again.steps == 0
    assert torch.equal(cold.weights, minimum(SoftmaxRegression(x, y, 10), 1e-3).weights)  # the same bits


def test_where_float32_says_nothing_the_search_goes_on_in_float64() -> None:
    """The curvature of the penalty, 1e-10, is far below what float32 keeps of the largest, about 10."""
    x, y = digits(600, 5, 10)
    found = SoftmaxRegression(x, y, 10).minimum(1e-10, tolerance=1e-13, max_steps=50)
    w, b = found.weights.clone().requires_grad_(), found.biases.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(x @ w + b, y) + 0.5e-10 * w.square().sum()
    loss.backward()
    assert float(max(w.grad.abs().max(), b.grad.abs().max())) < 2e-13


def test_each_step_is_reported_and_no_more_are_taken_than_allowed() -> None:
    x, y = digits(300, 0, 10)
    told: list[int] = []
    found = SoftmaxRegression(x, y, 10).minimum(1e-3, tolerance=0.0, max_steps=3, on_step=lambda: told.append(1))
    assert (found.steps, len(told)) == (3, 3)
    assert found.steepest > 0
