"""Label-free numbers against slow loops of their equations in float64, and closed forms."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ebclab.evaluation.measures import geometry as module
from ebclab.evaluation.measures.geometry import TEMPERATURES, geometry, pool_information


def test_every_number_is_its_equation() -> None:
    draw = torch.Generator().manual_seed(0)
    first, second, features = (torch.randn(count, 4, generator=draw, dtype=torch.float64) for count in (5, 5, 9))
    second = first + 0.3 * second  # two views of the same images
    found = geometry(first, second, features)
    unit = [[row / np.linalg.norm(row) for row in view.numpy()] for view in (first, second)]
    n = len(first)
    assert found.distances.tolist() == pytest.approx([float(((a - b) ** 2).sum()) for a, b in zip(*unit, strict=True)])
    potentials = [
        np.mean([math.exp(-2 * ((view[i] - view[j]) ** 2).sum()) for i in range(n) for j in range(i)]) for view in unit
    ]
    assert found.uniformity == pytest.approx(np.mean(np.log(potentials)))
    shares = np.linalg.svd(features.numpy(), compute_uv=False)
    shares = shares / shares.sum()
    assert found.effective_rank == pytest.approx(math.exp(-(shares * np.log(shares)).sum()), rel=1e-6)
    losses, sizes = [], []
    for view in range(2):
        for i in range(n):
            right = unit[view][i] @ unit[1 - view][i] / 0.1
            wrong = [unit[view][i] @ unit[v][j] / 0.1 for v in range(2) for j in range(n) if j != i]  # of other images
            losses.append(-right + math.log(math.exp(right) + sum(map(math.exp, wrong))))
            weights = np.exp(wrong) / np.exp(wrong).sum()
            sizes.append(1 / (len(wrong) * (weights**2).sum()))
    assert found.num_negatives == len(wrong)
    assert found.info_nce == pytest.approx(np.mean(losses))
    assert found.log_k_saturation == pytest.approx(1 - np.mean(losses) / math.log(len(wrong) + 1))
    assert found.effective_sample_size == pytest.approx(np.mean(sizes))


def _gaussian_pairs(rho: float, count: int) -> tuple[Tensor, Tensor]:
    """Return vectors whose inner product is log p(y | x) / p(y) of correlated Gaussians, up to a function of x."""
    generator = torch.Generator().manual_seed(0)
    x, noise = torch.randn(2, count, generator=generator, dtype=torch.float64)
    y = rho * x + math.sqrt(1 - rho**2) * noise
    return torch.stack([x, torch.ones(count)], 1), torch.stack([rho * y, -(rho**2) * y**2 / 2], 1) / (1 - rho**2)


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_the_best_critic_of_correlated_gaussians_gives_their_information(rho: float) -> None:
    found = pool_information(*_gaussian_pairs(rho, 2_048), temperatures=(1.0,))
    assert found.nats == pytest.approx(-math.log(1 - rho**2) / 2, abs=0.05)  # statistical error: 0.023


@pytest.mark.parametrize(("classes", "each"), [(2, 50), (7, 30), (64, 8)])
def test_vectors_that_say_the_class_alone_have_its_entropy(classes: int, each: int) -> None:
    vectors = torch.eye(classes).repeat(each, 1)
    found = pool_information(vectors, vectors)
    assert found.nats == pytest.approx(math.log(classes), abs=1e-4)
    assert found.bound == pytest.approx(math.log(classes * each))
    assert pool_information(torch.eye(classes), torch.eye(classes)).nats == pytest.approx(math.log(classes), abs=1e-4)


def test_information_is_the_largest_of_a_slow_loop_over_temperatures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", 64)
    generator = torch.Generator().manual_seed(3)
    first = torch.randn(150, 6, generator=generator, dtype=torch.float64)  # more than two blocks
    second = first + torch.randn(150, 6, generator=generator, dtype=torch.float64)
    first, second = (functional.normalize(each, dim=1) for each in (first, second))
    found, by_hand = pool_information(first, second), {}
    for tau in TEMPERATURES:
        weights = [[math.exp(s / tau) for s in row] for row in (first @ second.T).tolist()]
        by_hand[tau] = sum(math.log(row[i] / (sum(row) / len(row))) for i, row in enumerate(weights)) / len(weights)
    assert found.nats == pytest.approx(max(by_hand.values()), rel=1e-10)
    assert found.temperature == max(by_hand, key=lambda tau: by_hand[tau])
