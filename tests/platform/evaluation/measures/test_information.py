"""Mutual information by a pool of negatives against closed forms and a slow loop."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ebclab.evaluation.measures.geometry import TEMPERATURES, pool_information


def _gaussian_pairs(rho: float, count: int) -> tuple[Tensor, Tensor]:
    """Return vectors whose inner product is log p(y | x) / p(y) of correlated Gaussians, up to a function of x."""
    generator = torch.Generator().manual_seed(0)
    x, noise = torch.randn(2, count, generator=generator, dtype=torch.float64)
    y = rho * x + math.sqrt(1 - rho**2) * noise
    return torch.stack([x, torch.ones(count)], 1), torch.stack([rho * y, -(rho**2) * y**2 / 2], 1) / (1 - rho**2)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 0.99])
def test_the_best_critic_of_correlated_gaussians_gives_their_information(rho: float) -> None:
    found = pool_information(*_gaussian_pairs(rho, 4_096), temperatures=(1.0,))
    assert found.nats == pytest.approx(-math.log(1 - rho**2) / 2, abs=0.05)  # statistical error: 0.016


@pytest.mark.parametrize(("classes", "each"), [(2, 50), (7, 30), (64, 40)])
def test_vectors_that_say_the_class_alone_have_its_entropy(classes: int, each: int) -> None:
    vectors = torch.eye(classes).repeat(each, 1)
    found = pool_information(vectors, vectors)
    assert found.nats == pytest.approx(math.log(classes), abs=1e-4)
    assert found.bound == pytest.approx(math.log(classes * each))
    assert pool_information(torch.eye(classes), torch.eye(classes)).nats == pytest.approx(math.log(classes), abs=1e-4)


def test_information_is_the_largest_of_a_slow_loop_over_temperatures() -> None:
    generator = torch.Generator().manual_seed(3)
    first = torch.randn(1_100, 6, generator=generator, dtype=torch.float64)  # more than a block
    second = first + torch.randn(1_100, 6, generator=generator, dtype=torch.float64)
    first, second = (functional.normalize(each, dim=1) for each in (first, second))
    found, by_hand = pool_information(first, second), {}
    for tau in TEMPERATURES:
        weights = [[math.exp(s / tau) for s in row] for row in (first @ second.T).tolist()]
        by_hand[tau] = sum(math.log(row[i] / (sum(row) / len(row))) for i, row in enumerate(weights)) / len(weights)
    assert found.nats == pytest.approx(max(by_hand.values()), rel=1e-10)
    assert found.temperature == max(by_hand, key=lambda tau: by_hand[tau])
