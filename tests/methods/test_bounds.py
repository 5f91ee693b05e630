"""Bounds on mutual information on a Gaussian whose mutual information is known, and what their gradients are."""

import math

import pytest
import torch
from torch import Tensor

from energy_contrast.bounds import donsker_varadhan, fenchel_legendre, nwj
from energy_contrast.losses import flat_nce, info_nce

BOUNDS = (donsker_varadhan, nwj, fenchel_legendre)
PAIRS = 10_000


def gaussian_critic(information: float, num_negatives: int) -> tuple[Tensor, Tensor]:
    """Return log p(y | x) / p(y) of pairs (N,) and of strangers (N, K), for 4 correlated coordinates.

    Each coordinate has unit variances and correlation r, so the mutual information is -2 log(1 - r^2).
    """
    generator = torch.Generator().manual_seed(num_negatives)
    variance = math.exp(-information / 2)  # 1 - r^2, of y given x
    r = math.sqrt(1 - variance)
    x, noise = torch.randn(2, PAIRS, 4, generator=generator, dtype=torch.float64)
    y = r * x + math.sqrt(variance) * noise
    strangers = torch.randn(PAIRS, num_negatives, 4, generator=generator, dtype=torch.float64)

    def log_ratio(x: Tensor, y: Tensor) -> Tensor:
        return (y.square() / 2 - (y - r * x).square() / (2 * variance)).sum(dim=-1) + information

    return log_ratio(x, y), log_ratio(x[:, None], strangers)


@pytest.mark.parametrize("num_negatives", [4, 32])
def test_nwj_of_the_best_critic_is_the_mutual_information_within_its_spread(num_negatives: int) -> None:
    positive, negatives = (g + 1 for g in gaussian_critic(1.0, num_negatives))
    found = [-nwj(p, n, temperature=1.0).item() for p, n in zip(positive.split(100), negatives.split(100), strict=True)]
    spread = torch.tensor(found).std().item() / math.sqrt(len(found))
    assert sum(found) / len(found) == pytest.approx(1.0, abs=4 * spread)
    assert spread < 0.05


def test_donsker_varadhan_of_each_anchor_lies_above_and_falls_with_the_negatives() -> None:
    found = [-donsker_varadhan(*gaussian_critic(1.0, k), temperature=1.0).item() for k in (4, 16, 64)]
    assert found[0] > found[1] > found[2] > 1.0
    assert found[2] < 1.15


@pytest.mark.parametrize("information", [1.0, 5.0])
def test_info_nce_lies_below_the_mutual_information_and_the_logarithm_of_its_candidates(information: float) -> None:
    found = []
    for k in (4, 16, 64):
        found.append(math.log(k + 1) - info_nce(*gaussian_critic(information, k), temperature=1.0).item())
        assert found[-1] <= min(information, math.log(k + 1))
    assert found[0] < found[1] < found[2]
    assert found[2] > 0.75 * min(information, math.log(65))


def random_similarities() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    positive = torch.rand(5, generator=generator, dtype=torch.float64) * 2 - 1
    negatives = torch.rand(5, 7, generator=generator, dtype=torch.float64) * 2 - 1
    return positive.requires_grad_(), negatives.requires_grad_()


def test_bounds_are_their_equations() -> None:
    positive, negatives = random_similarities()
    critic, others = (positive / 0.3).tolist(), (negatives / 0.3).tolist()
    ratios = [sum(math.exp(o - c) for o in row) / 7 for c, row in zip(critic, others, strict=True)]
    log_ratio = sum(map(math.log, ratios)) / 5
    plain = sum(sum(math.exp(o - 1) for o in row) / 7 - c for c, row in zip(critic, others, strict=True)) / 5
    expected = dict(zip(BOUNDS, (log_ratio, plain, log_ratio), strict=True))
    for bound in BOUNDS:
        assert bound(positive, negatives, temperature=0.3).item() == pytest.approx(expected[bound], rel=1e-12)


def test_no_other_u_makes_the_fenchel_legendre_bound_better() -> None:
    positive, negatives = random_similarities()
    ratio = ((negatives - positive[:, None]) / 0.3).exp().mean(dim=1)
    best = fenchel_legendre(positive, negatives, temperature=0.3)
    for shift in (-0.5, 0.1, 2.0):
        u = ratio.log() + shift
        assert (u + (-u).exp() * ratio - 1).mean() > best


@pytest.mark.parametrize("bound", [donsker_varadhan, fenchel_legendre])
def test_two_bounds_have_the_gradient_of_flat_nce(bound: object) -> None:
    similarities = random_similarities()
    found, expected = (
        torch.autograd.grad(loss(*similarities, temperature=0.3), similarities) for loss in (bound, flat_nce)
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)
