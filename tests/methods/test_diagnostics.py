"""Diagnostics against closed forms and slow loops."""

import math

import pytest
import torch
from torch import Tensor

from energy_contrast.diagnostics import (
    alignment,
    diagnose,
    effective_rank,
    effective_sample_size,
    embedding_spread,
    log_k_saturation,
    uniformity,
)
from energy_contrast.losses import info_nce, pair_similarities


def random_vectors(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("k", [1, 8, 510])
def test_ess_is_one_for_equal_logits_and_one_over_k_for_a_single_winner(k: int) -> None:
    equal = torch.full((3, k), -7.0)
    winner = torch.zeros(3, k).index_fill(1, torch.tensor([0]), 1e4)
    torch.testing.assert_close(effective_sample_size(equal), torch.ones(3))
    torch.testing.assert_close(effective_sample_size(winner), torch.full((3,), 1 / k))


def test_ess_is_its_equation() -> None:
    logits = 3 * random_vectors(4, 7)
    for i, actual in enumerate(effective_sample_size(logits).tolist()):
        weights = [math.exp(x) for x in logits[i].tolist()]
        normalised = [w / sum(weights) for w in weights]
        assert actual == pytest.approx(1 / (7 * sum(w * w for w in normalised)), rel=1e-12)


def test_ess_falls_as_the_temperature_falls_and_is_lower_with_the_positive() -> None:
    # The mechanism behind the corrected sign of the controller, on views that agree up to noise.
    z = random_vectors(16, 8)
    positive, negatives = pair_similarities(z, z + 0.3 * random_vectors(16, 8, seed=1))
    temperatures = [1.0, 0.5, 0.2, 0.1, 0.05, 0.02]
    without = [effective_sample_size(negatives / t).mean().item() for t in temperatures]
    candidates = torch.cat([positive[:, None], negatives], dim=1)
    including = [effective_sample_size(candidates / t).mean().item() for t in temperatures]
    assert without == sorted(without, reverse=True)
    assert without[0] > 0.85
    assert without[-1] < 0.15
    assert all(low < high for low, high in zip(including, without, strict=True))


def test_saturation_is_zero_at_chance_and_one_when_the_loss_is_gone() -> None:
    chance = info_nce(torch.zeros(2), torch.zeros(2, 30), temperature=0.1)
    assert log_k_saturation(chance, num_negatives=30).item() == pytest.approx(0.0, abs=1e-6)
    assert log_k_saturation(torch.tensor(0.0), num_negatives=30).item() == 1.0
    halfway = torch.tensor(0.5 * math.log(31))
    assert log_k_saturation(halfway, num_negatives=30).item() == pytest.approx(0.5)


def test_alignment_and_uniformity_are_their_equations() -> None:
    z0, z1 = random_vectors(6, 3), random_vectors(6, 3, seed=1)
    u0, u1 = ([v / v.norm() for v in z] for z in (z0, z1))
    distances = [((a - b) ** 2).sum().item() for a, b in zip(u0, u1, strict=True)]
    potentials = [math.exp(-2 * ((u0[i] - u0[j]) ** 2).sum().item()) for i in range(6) for j in range(6) if i != j]
    assert alignment(z0, z1).item() == pytest.approx(sum(distances) / 6, rel=1e-12)
    assert uniformity(z0).item() == pytest.approx(math.log(sum(potentials) / 30), rel=1e-12)


@pytest.mark.parametrize(
    ("z", "expected"),
    [
        (torch.ones(5, 3), 0.0),
        (torch.zeros(5, 3), 0.0),  # a dead encoder has collapsed: it must not look evenly spread
        (torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), -8.0),
        # squared distances 0, 1, 1
        (torch.tensor([[0.0, 0.0], [0.0, 0.0], [3.0, 0.0]]), math.log((1 + 2 * math.exp(-2)) / 3)),
    ],
)
def test_uniformity_runs_from_collapsed_to_opposite_points_and_can_be_trained(z: Tensor, expected: float) -> None:
    assert uniformity(z).item() == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert torch.autograd.gradcheck(uniformity, random_vectors(6, 3).requires_grad_())


def test_effective_rank_is_the_number_of_orthonormal_columns_and_at_least_one() -> None:
    q = torch.linalg.qr(random_vectors(20, 6)).Q
    assert effective_rank(q).item() == pytest.approx(6.0, rel=1e-9)
    assert effective_rank(q.T).item() == pytest.approx(6.0, rel=1e-9)
    assert effective_rank(q.float()).item() == pytest.approx(6.0, rel=1e-5)
    # Roots of rounding errors of eigenvalues add about sqrt(1e-16) each.
    assert effective_rank(torch.ones(20, 8)).item() == pytest.approx(1.0, abs=1e-5)
    assert effective_rank(torch.zeros(20, 8)).item() == 1.0


@pytest.mark.parametrize("shape", [(30, 5), (5, 30)])
def test_effective_rank_is_the_entropy_of_singular_values(shape: tuple[int, int]) -> None:
    z = random_vectors(*shape)
    sigma = torch.linalg.svdvals(z)
    p = sigma / sigma.sum()
    assert effective_rank(z).item() == pytest.approx(math.exp(-(p * p.log()).sum().item()), rel=1e-9)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_effective_rank_of_vectors_that_are_not_finite_is_nan_and_no_crash(bad: float) -> None:
    z = random_vectors(10, 4)
    z[3, 2] = bad
    assert effective_rank(z).isnan()


def test_diagnose_reports_detached_float32_scalars_that_match_the_single_functions() -> None:
    projection = random_vectors(8, 3).float().requires_grad_()
    z0, z1 = projection.chunk(2)
    positive, negatives = pair_similarities(z0, z1)
    loss = info_nce(positive, negatives, temperature=0.2)
    found = diagnose(projection, positive, negatives, info_nce=loss, temperature=0.2)
    assert all(v.shape == () and v.dtype == torch.float32 and not v.requires_grad for v in found.values())
    candidates = torch.cat([positive[:, None], negatives], dim=1)
    torch.testing.assert_close(found["ess"], effective_sample_size(negatives / 0.2).mean().detach())
    torch.testing.assert_close(found["ess_with_positive"], effective_sample_size(candidates / 0.2).mean().detach())
    torch.testing.assert_close(found["log_k_saturation"], log_k_saturation(loss, num_negatives=6).detach())
    torch.testing.assert_close(found["alignment"], (2 - 2 * positive).mean().detach())
    torch.testing.assert_close(found["uniformity"], (uniformity(z0) + uniformity(z1)).detach() / 2)
    torch.testing.assert_close(found["effective_rank"], effective_rank(projection).detach())
    torch.testing.assert_close(found["embedding_spread"], (embedding_spread(z0) + embedding_spread(z1)).detach() / 2)


def test_embedding_spread_is_that_of_unit_vectors_from_none_to_an_even_sphere() -> None:
    z = random_vectors(4000, 16)
    assert embedding_spread(z[:1].expand(5, -1) * torch.arange(1, 6)[:, None]) == pytest.approx(0, abs=1e-6)
    assert embedding_spread(z) == pytest.approx(1, abs=0.01)
    unit = z[:7] / z[:7].norm(dim=1, keepdim=True)
    slow = sum(math.sqrt(sum((x - sum(column) / 7) ** 2 for x in column) / 6) for column in unit.T.tolist()) / 16
    assert embedding_spread(z[:7]) == pytest.approx(slow * 4)
