"""Energies against their equations written out as loops, their limits, and finite differences."""

import math

import pytest
import torch
from torch import Tensor

from energy_contrast.energies import marginal_energy, pair_energy


def vectors(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def loop_energy(z: Tensor, references: Tensor, temperature: float, skip_own: bool = False) -> list[float]:
    """Eq. 20, number by number."""
    energies = []
    for n, a in enumerate(z):
        total = 0.0
        for m, b in enumerate(references):
            if skip_own and m == n:
                continue
            squared = sum(
                (float(x) / float(a.norm()) - float(y) / float(b.norm())) ** 2 for x, y in zip(a, b, strict=True)
            )
            total += math.exp(-squared / temperature)
        energies.append(-math.log(total))
    return energies


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_the_pair_energy_is_the_squared_distance_of_unit_vectors_over_tau(temperature: float) -> None:
    z, other = vectors(4), vectors(6, seed=1)
    units = [v / v.norm(dim=1, keepdim=True) for v in (z, other)]
    expected = (units[0][:, None] - units[1][None]).square().sum(dim=2) / temperature
    torch.testing.assert_close(pair_energy(z, other, temperature=temperature), expected)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_the_marginal_energy_is_equation_20(temperature: float) -> None:
    z, references = vectors(4), vectors(6, seed=1)
    found = marginal_energy(z, references, temperature=temperature)
    assert found.tolist() == pytest.approx(loop_energy(z, references, temperature))


def test_equation_15_leaves_the_image_itself_out() -> None:
    z = vectors(3)
    references = torch.cat([z, vectors(3, seed=1)])
    found = marginal_energy(z, references, temperature=0.2, exclude_self=True)
    assert found.tolist() == pytest.approx(loop_energy(z, references, 0.2, skip_own=True))
    # An image far from all others has an infinite gradient neither by itself nor by what was left out.
    leaf = z.clone().requires_grad_()
    marginal_energy(leaf, torch.cat([leaf, vectors(3, seed=1)]), temperature=0.2, exclude_self=True).sum().backward()
    assert leaf.grad.isfinite().all()


def test_an_image_on_all_references_has_the_lowest_energy() -> None:
    same = torch.ones(7, 5, dtype=torch.float64)
    assert marginal_energy(same[:1], same, temperature=0.1).item() == pytest.approx(-math.log(7))
    assert (marginal_energy(vectors(20), same, temperature=0.1) > -math.log(7)).all()


def test_the_gradient_is_that_of_finite_differences() -> None:
    z, references = vectors(3).requires_grad_(), vectors(5, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: pair_energy(a, b, temperature=0.4), (z, references))
    assert torch.autograd.gradcheck(lambda a, b: marginal_energy(a, b, temperature=0.4), (z, references))
    assert torch.autograd.gradcheck(
        lambda a, b: marginal_energy(a, torch.cat([a, b]), temperature=0.4, exclude_self=True), (z, references)
    )


def test_projections_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"pair_energy: needs projections of one size, got \(4, 5\) and \(4, 3\)"):
        pair_energy(vectors(4), vectors(4)[:, :3], temperature=0.1)
    with pytest.raises(ValueError, match="must be among the references, got 2 for 4 images"):
        marginal_energy(vectors(4), vectors(2), temperature=0.1, exclude_self=True)
    with pytest.raises(ValueError, match="got 1 for 1 images; use at least as many, and at least 2"):
        marginal_energy(vectors(1), vectors(1), temperature=0.1, exclude_self=True)
