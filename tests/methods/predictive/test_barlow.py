"""Barlow Twins against a loop of its equations, and what C is at its limits."""

from typing import cast

import pytest
import torch
from torch import Tensor, nn

from energy_contrast.losses import info_nce, pair_similarities
from energy_contrast.networks.heads import ProjectionHead
from energy_contrast.predictive.barlow import Barlow

from ..conftest import assert_same_loss, built, random_batch, unlabelled

SIZE = 6


def build(**settings: float) -> Barlow:
    return cast(Barlow, built(Barlow, **{"projection_size": 5, **settings}))


def before_the_norm(method: Barlow, view: Tensor) -> Tensor:
    projection: Tensor = nn.Sequential(*list(method.head)[:-1])(method.encoder(view))
    return projection


def slow_terms(views: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Both sums over C, number by number, of projections before their norm."""
    count, size = views[0].shape
    scaled = []
    for z in views:
        means = [sum(z[i, j] for i in range(count)) / count for j in range(size)]
        variances = [sum((z[i, j] - means[j]) ** 2 for i in range(count)) / count for j in range(size)]
        scaled.append(
            [[(z[i, j] - means[j]) / (variances[j] + 1e-5) ** 0.5 for j in range(size)] for i in range(count)]
        )
    invariance, redundancy = torch.zeros(()).double(), torch.zeros(()).double()
    for j in range(size):
        for k in range(size):
            shared = sum(scaled[0][i][j] * scaled[1][i][k] for i in range(count)) / count
            if j == k:
                invariance = invariance + (1 - shared) ** 2
            else:
                redundancy = redundancy + shared**2
    return invariance, redundancy


@pytest.mark.parametrize("size", [5, 8])  # fewer dimensions than images, and more
def test_loss_and_gradients_are_the_papers(size: int) -> None:
    method, batch = build(projection_size=size, redundancy_weight=0.3), random_batch(SIZE)
    output = method(batch, torch.Generator())
    terms = slow_terms([before_the_norm(method, view) for view in batch.views])
    expected = terms[0] + 0.3 * terms[1]
    assert_same_loss(output.loss, expected, method)
    found = [output.metrics[name] for name in ("invariance", "redundancy")]
    torch.testing.assert_close(found, [term.detach() for term in terms], rtol=1e-9, atol=0)


def test_what_is_read_is_simclrs_loss_of_the_normalised_projections() -> None:
    method, batch = build(), random_batch(SIZE)
    with torch.no_grad():
        z = [before_the_norm(method, view) for view in batch.views]
    z = [(each - each.mean(dim=0)) / torch.sqrt(each.var(dim=0, correction=0) + 1e-5) for each in z]
    expected = info_nce(*pair_similarities(*z), temperature=0.2)
    torch.testing.assert_close(method(batch, torch.Generator()).metrics["info_nce"], expected)


def test_the_head_is_the_released_one() -> None:
    head = build(projection_size=7).head
    assert [type(layer).__name__ for layer in head] == [
        *(["Linear", "GlobalBatchNorm1d", "ReLU"] * 2),
        "Linear",
        "GlobalBatchNorm1d",
    ]
    assert all(layer.bias is None for layer in head if isinstance(layer, nn.Linear))
    assert not any(weight.requires_grad for weight in head[-1].parameters())


WHITE = torch.tensor(
    [[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=torch.float64
)  # dimensions of mean 0 and variance 1 without correlation
COPIES = WHITE[:, :1].expand(4, 3)
LIMITS: dict[str, tuple[Tensor, Tensor, float, float]] = {
    "equal views without correlation": (WHITE, WHITE, 0, 0),
    "scale and shift say nothing": (WHITE, 50 * WHITE + 7, 0, 0),
    "opposite views": (WHITE, -WHITE, 4 * 3, 0),
    "copies of one dimension": (COPIES, COPIES, 0, 3 * 2),
    "dimensions exchanged": (WHITE, WHITE.roll(1, dims=1), 3, 3),
    "collapsed": (torch.ones_like(WHITE), torch.ones_like(WHITE), 3, 0),
}


@pytest.mark.parametrize("case", LIMITS)
def test_limits_have_the_terms_that_follow_from_c(case: str) -> None:
    first, second, invariance, redundancy = LIMITS[case]
    method = build(projection_size=3, projection_num_layers=1)
    method.encoder, method.head = nn.Flatten(), cast(ProjectionHead, method.head[-1])  # the norm alone
    views = torch.stack([first, second]).view(2, 4, 1, 1, 3)
    output = method(unlabelled(views), torch.Generator())
    assert output.metrics["invariance"].item() == pytest.approx(invariance, abs=1e-3)
    assert output.metrics["redundancy"].item() == pytest.approx(redundancy, abs=1e-3)
    assert output.loss.item() == pytest.approx(invariance + 0.0051 * redundancy, abs=1e-3)
