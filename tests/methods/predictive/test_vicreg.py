"""VICReg against loops of its equations, and what each term is blind to."""

import math

import pytest
import torch
from torch import Tensor

from energy_contrast.predictive.vicreg import Vicreg, lack_of_spread, shared_variation

from ..conftest import assert_same_loss, built, random_batch

SIZE = 6


def slow_terms(views: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Distance, the mean of both v and the sum of both c, number by number."""
    count, size = views[0].shape
    pairs = [(i, j) for i in range(count) for j in range(size)]
    invariance = sum((views[0][i, j] - views[1][i, j]) ** 2 for i, j in pairs) / (count * size)
    variance, covariance = torch.zeros(()).double(), torch.zeros(()).double()
    for z in views:
        means = [sum(z[i, j] for i in range(count)) / count for j in range(size)]
        for j in range(size):
            for k in range(size):
                shared = sum((z[i, j] - means[j]) * (z[i, k] - means[k]) for i in range(count)) / (count - 1)
                if j == k:
                    variance = variance + torch.clamp(1 - torch.sqrt(shared + 1e-4), min=0) / size / 2
                else:
                    covariance = covariance + shared**2 / size
    return invariance, variance, covariance


@pytest.mark.parametrize("size", [5, 8])  # fewer dimensions than images, and more
def test_loss_and_gradients_are_the_papers(size: int) -> None:
    method, batch = (
        built(Vicreg, projection_size=size, invariance=3.0, variance=5.0, covariance=7.0),
        random_batch(SIZE),
    )
    with torch.no_grad():
        method.head[-1].weight.mul_(2.5)  # some dimensions spread beyond 1
    output = method(batch, torch.Generator())
    views = [method.head(method.encoder(view)) for view in batch.views]
    spread = torch.cat([view.std(dim=0) for view in views])
    assert 0 < (spread > 1).sum() < 2 * size
    terms = slow_terms(views)
    expected = 3 * terms[0] + 5 * terms[1] + 7 * terms[2]
    assert_same_loss(output.loss, expected, method)
    found = [output.metrics[name] for name in ("invariance", "variance", "covariance")]
    torch.testing.assert_close(found, [term.detach() for term in terms], rtol=1e-9, atol=0)


def test_a_collapsed_batch_costs_all_the_spread_there_is() -> None:
    assert lack_of_spread(torch.ones(4, 3)).item() == pytest.approx(1 - math.sqrt(1e-4), rel=1e-6)
    assert lack_of_spread(torch.tensor([[2.0], [-2.0]])).item() == 0


def test_white_dimensions_share_nothing_and_copies_share_all() -> None:
    white = torch.tensor([[1, 1], [1, -1], [-1, 1], [-1, -1]], dtype=torch.float64) * math.sqrt(3 / 4)  # variance 1
    assert shared_variation(white).item() == pytest.approx(0, abs=1e-15)
    copies = white[:, :1].expand(4, 7)  # fewer images than dimensions: C is all ones
    assert shared_variation(copies).item() == pytest.approx(6, rel=1e-12)


@pytest.mark.parametrize("z", [torch.zeros(1, 4), torch.zeros(4)])
def test_one_image_has_no_statistics(z: Tensor) -> None:
    for statistic in (lack_of_spread, shared_variation):
        with pytest.raises(ValueError, match="need at least two images"):
            statistic(z)
