"""Losses against their equations, written as slow double loops in float64."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from energy_contrast.contrastive.simclr import OBJECTIVES
from energy_contrast.losses import (
    decoupled,
    flat_nce,
    global_contrastive,
    info_nce,
    negative_cosine,
    negative_spread,
    nt_xent,
    pair_similarities,
    temperature_free,
    von_mises_fisher_weights,
)

TAU = 0.3


def random_similarities(n: int = 6, k: int = 9) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.rand(*shape, dtype=torch.float64, generator=generator) * 2 - 1  # noqa: E731
    return draw(n).requires_grad_(), draw(n, k).requires_grad_()


def random_views(n: int = 5, d: int = 4) -> tuple[Tensor, Tensor]:
    z = torch.randn(2, n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return z[0].requires_grad_(), z[1].requires_grad_()


def slow_info_nce_per_anchor(positive: Tensor, negatives: Tensor, tau: float) -> list[Tensor]:
    terms = []
    for i in range(len(positive)):
        denominator = torch.exp(positive[i] / tau)
        for j in range(negatives.shape[1]):
            denominator = denominator + torch.exp(negatives[i, j] / tau)
        terms.append(-torch.log(torch.exp(positive[i] / tau) / denominator))
    return terms


def slow_xi(positive: Tensor, negatives: Tensor, tau: float) -> list[Tensor]:
    return [
        sum(torch.exp((negatives[i, j] - positive[i]) / tau) for j in range(negatives.shape[1]))
        for i in range(len(positive))
    ]


def slow_flat_nce(positive: Tensor, negatives: Tensor, tau: float, *, include_positive: bool) -> Tensor:
    terms = [xi + 1 if include_positive else xi for xi in slow_xi(positive, negatives, tau)]
    return sum(term / term.detach() for term in terms) / len(terms)


def slow_nt_xent(z0: Tensor, z1: Tensor, tau: float) -> Tensor:
    z = list(z0) + list(z1)
    n = len(z0)
    cosine = lambda a, b: a @ b / (a.norm() * b.norm())  # noqa: E731
    total = torch.zeros((), dtype=torch.float64)
    for i in range(2 * n):
        denominator = sum(torch.exp(cosine(z[i], z[k]) / tau) for k in range(2 * n) if k != i)
        total = total - torch.log(torch.exp(cosine(z[i], z[(i + n) % (2 * n)]) / tau) / denominator)
    return total / (2 * n)


def gradients(loss: Tensor, *inputs: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, inputs, retain_graph=True))


def assert_same_gradients(loss: Tensor, other: Tensor, *inputs: Tensor) -> None:
    for mine, theirs in zip(gradients(loss, *inputs), gradients(other, *inputs), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-14)


def test_info_nce_is_its_equation_in_value_and_gradient() -> None:
    positive, negatives = random_similarities()
    slow = sum(slow_info_nce_per_anchor(positive, negatives, TAU)) / len(positive)
    fast = info_nce(positive, negatives, temperature=TAU)
    torch.testing.assert_close(fast, slow, rtol=1e-13, atol=0)
    assert_same_gradients(fast, slow, positive, negatives)


@pytest.mark.parametrize("k", [1, 7, 510])
def test_info_nce_of_equal_similarities_is_the_log_of_k_plus_1(k: int) -> None:
    loss = info_nce(torch.full((3,), 0.4), torch.full((3, k), 0.4), temperature=0.1)
    assert loss.item() == pytest.approx(math.log(k + 1), rel=1e-6)


def test_info_nce_keeps_its_digits_in_float32_when_the_loss_is_tiny() -> None:
    # log(1 + xi) with xi = exp(-2 / 0.1) = 2.06e-9, far below float32's resolution at 1.
    loss = info_nce(torch.ones(1), -torch.ones(1, 1), temperature=0.1)
    assert loss.item() == pytest.approx(math.log1p(math.exp(-20)), rel=1e-5)


def test_losses_stay_finite_at_a_temperature_of_a_thousandth() -> None:
    positive, negatives = -torch.ones(2, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    for loss in (info_nce, flat_nce):
        value = loss(positive, negatives, temperature=1e-3)
        assert value.isfinite()
        assert all(g.isfinite().all() for g in torch.autograd.grad(value, negatives))
    assert info_nce(positive, negatives, temperature=1e-3).item() == pytest.approx(2000 + math.log(3), rel=1e-6)


@pytest.mark.parametrize("include_positive", [False, True])
def test_flat_nce_is_its_equation_in_value_and_gradient(include_positive: bool) -> None:
    positive, negatives = random_similarities()
    slow = slow_flat_nce(positive, negatives, TAU, include_positive=include_positive)
    fast = flat_nce(positive, negatives, temperature=TAU, include_positive=include_positive)
    torch.testing.assert_close(fast, slow, rtol=1e-13, atol=0)
    assert_same_gradients(fast, slow, positive, negatives)


@pytest.mark.parametrize("include_positive", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_flat_nce_is_exactly_one(dtype: torch.dtype, include_positive: bool) -> None:
    positive, negatives = (x.detach().to(dtype) for x in random_similarities(n=33, k=100))
    assert flat_nce(positive, negatives, temperature=0.01, include_positive=include_positive).item() == 1.0


def test_each_anchors_info_nce_gradient_is_flat_nce_times_the_chance_to_miss() -> None:
    positive, negatives = random_similarities()
    for i in range(len(positive)):
        mine, others = positive[i : i + 1], negatives[i : i + 1]
        info = gradients(info_nce(mine, others, temperature=TAU), mine, others)
        flat = gradients(flat_nce(mine, others, temperature=TAU), mine, others)
        chance = torch.exp(mine / TAU) / (torch.exp(mine / TAU) + torch.exp(others / TAU).sum())
        for g_info, g_flat in zip(info, flat, strict=True):
            torch.testing.assert_close(g_info, (1 - chance) * g_flat, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("gamma", [0.5, 3.0, -1.0, -2.5])
def test_hoelder_flat_nce_is_its_definition_and_flat_nce_at_another_temperature(gamma: float) -> None:
    """Definition 3.6 as a ratio of Hoelder means; by proposition 3.7, FlatNCE of gamma times the logits over gamma."""
    positive, negatives = random_similarities()
    hoelder = flat_nce(positive, negatives, temperature=TAU, exponent=gamma)
    means = (((negatives - positive[:, None]) / TAU).exp() ** gamma).mean(dim=1) ** (1 / gamma)
    assert hoelder.item() == 1.0
    assert_same_gradients(hoelder, (means / means.detach()).mean(), positive, negatives)
    assert_same_gradients(gamma * hoelder, flat_nce(positive, negatives, temperature=TAU / gamma), positive, negatives)


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(
    ("gamma", "mean"), [(0.0, torch.mean), (1e-7, torch.mean), (-1e7, torch.amin), (1e7, torch.amax)]
)
def test_hoelder_flat_nce_has_the_geometric_mean_least_and_largest_as_limits(gamma, mean, include):
    positive, negatives = random_similarities()
    hoelder = flat_nce(positive, negatives, temperature=TAU, exponent=gamma, include_positive=include)
    logs = (negatives - positive[:, None]) / TAU
    limit = mean(F.pad(logs, (1, 0)) if include else logs, dim=1).mean()
    assert hoelder.item() == 1.0
    for found, expected in zip(*(gradients(loss, positive, negatives) for loss in (hoelder, limit)), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-9)


def test_nt_xent_is_its_equation_in_value_and_gradient_of_both_views() -> None:
    z0, z1 = random_views()
    fast, slow = nt_xent(z0, z1, temperature=TAU), slow_nt_xent(z0, z1, TAU)
    torch.testing.assert_close(fast, slow, rtol=1e-13, atol=0)
    assert_same_gradients(fast, slow, z0, z1)
    assert all(g.abs().max() > 0 for g in gradients(fast, z0, z1))


def test_pair_similarities_hold_each_other_row_once() -> None:
    z0, z1 = random_views(n=4)
    positive, negatives = pair_similarities(z0, z1)
    z = torch.cat([z0, z1])
    for i in range(8):
        cosines = [F.cosine_similarity(z[i], z[k], dim=0).item() for k in range(8) if k not in (i, (i + 4) % 8)]
        assert sorted(negatives[i].tolist()) == pytest.approx(sorted(cosines))
        assert positive[i].item() == pytest.approx(F.cosine_similarity(z[i], z[(i + 4) % 8], dim=0).item())


def test_a_tensor_temperature_counts_like_a_number() -> None:
    positive, negatives = random_similarities()
    for loss in (info_nce, flat_nce):
        expected = gradients(loss(positive, negatives, temperature=0.25), negatives)
        actual = gradients(loss(positive, negatives, temperature=torch.tensor(0.25)), negatives)
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("shapes", [((3,), (4, 2)), ((3,), (3, 0)), ((3, 1), (3, 2)), ((3,), (3,))])
def test_similarities_that_do_not_fit_are_refused(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with_temperature = (info_nce, decoupled, *OBJECTIVES.values())
    for loss in (*(partial(loss, temperature=1.0) for loss in with_temperature), temperature_free):
        with pytest.raises(ValueError, match=r"similarities: .*, got .*; use \(N,\) and \(N, K\)"):
            loss(torch.zeros(shapes[0]), torch.zeros(shapes[1]))


@pytest.mark.parametrize("shapes", [((1, 4), (1, 4)), ((3, 4), (2, 4)), ((3,), (3,))])
def test_views_that_do_not_pair_are_refused(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match=r"pair_similarities: .*, got .*; use \(N, D\) twice"):
        pair_similarities(torch.ones(shapes[0]), torch.ones(shapes[1]))


def test_temperature_free_takes_odds_in_place_of_exponentials() -> None:
    positive, negatives = random_similarities()
    odds = lambda s: (1 + s) / (1 - s)  # noqa: E731
    slow = sum(
        -torch.log(odds(positive[i]) / (odds(positive[i]) + sum(odds(s) for s in negatives[i])))
        for i in range(len(positive))
    ) / len(positive)
    fast = temperature_free(positive, negatives)
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=0)
    assert_same_gradients(fast, slow, positive, negatives)


def test_temperature_free_stays_finite_where_images_agree() -> None:
    positive, negatives = torch.tensor([1.0, 1.0, -1.0]), torch.tensor([[0.0, 1.0], [0.0, -1.0], [1.0, 1.0]])
    positive.requires_grad_(), negatives.requires_grad_()
    loss = temperature_free(positive, negatives)
    assert all(g.isfinite().all() for g in torch.autograd.grad(loss, (positive, negatives)))
    log_odds = math.log(2e6)  # of 1 - 1e-6
    expected = (math.log(2) + 0.0 + math.log(2) + 2 * log_odds) / 3  # a tie; perfect; worst, twice
    assert loss.item() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("num_images", "target"), [(3, -0.5), (101, -0.01), (None, 0.0)])
def test_negative_spread_is_the_mean_squared_distance_from_equal_angles(num_images, target) -> None:
    _, negatives = random_similarities()
    slow = sum((s - target) ** 2 for row in negatives for s in row) / negatives.numel()
    fast = negative_spread(negatives, num_images)
    torch.testing.assert_close(fast, slow, rtol=1e-13, atol=0)
    assert_same_gradients(fast, slow, negatives)


@pytest.mark.parametrize("count", [2, 5])
def test_negative_spread_is_nothing_for_a_simplex_of_all_images(count: int) -> None:
    corners = F.normalize(torch.eye(count, dtype=torch.float64) - 1 / count, dim=1)
    _, negatives = pair_similarities(corners, corners)
    assert negative_spread(negatives, count).item() < 1e-30


def test_decoupled_is_its_equation_with_and_without_weights() -> None:
    positive, negatives = random_similarities()
    weights = torch.linspace(0.5, 1.5, len(positive), dtype=torch.float64)
    for chosen in (None, weights):
        w = torch.ones_like(weights) if chosen is None else weights
        slow = sum(
            -w[i] * positive[i] / TAU + torch.log(sum(torch.exp(s / TAU) for s in negatives[i]))
            for i in range(len(positive))
        ) / len(positive)
        fast = decoupled(positive, negatives, temperature=TAU, weights=chosen)
        torch.testing.assert_close(fast, slow, rtol=1e-13, atol=0)
        assert_same_gradients(fast, slow, positive, negatives)


def test_von_mises_fisher_weights_are_their_equation_and_constants() -> None:
    positive, _ = random_similarities()
    weights = von_mises_fisher_weights(positive, sigma=0.4)
    mean = sum(math.exp(s / 0.4) for s in positive.tolist()) / len(positive)
    assert weights.tolist() == pytest.approx([2 - math.exp(s / 0.4) / mean for s in positive.tolist()], rel=1e-13)
    assert weights.mean().item() == pytest.approx(1)
    assert not weights.requires_grad


def test_negative_cosine_is_its_equation_and_refuses_what_does_not_fit() -> None:
    prediction, target = random_views()
    slow = -sum(p @ t / (p.norm() * t.norm()) for p, t in zip(prediction, target, strict=True)) / len(prediction)
    fast = negative_cosine(prediction, target)
    torch.testing.assert_close(fast, slow, rtol=1e-13, atol=0)
    assert_same_gradients(fast, slow, prediction, target)
    with pytest.raises(ValueError, match=r"negative_cosine: .*, got \(5, 4\) and \(4, 4\); use \(N, D\) twice"):
        negative_cosine(prediction, target[1:])


def test_weights_of_the_global_loss_are_finite_where_the_exponential_of_a_similarity_is_not() -> None:
    """exp(720) is above the largest float64, but exp(720 - 709) is not: with s = 0.72 and u = exp(709)."""
    one = torch.ones(1, dtype=torch.float64)
    loss = global_contrastive(one, 0.72 * one[None], (709 * one).exp(), temperature=0.001)
    assert loss.item() == pytest.approx(math.exp(11) * 0.72 - 1, rel=1e-9)
