"""Langevin samplers against their equations, finite differences and the density they should draw from."""

import pytest
import torch
from torch import Tensor, nn

from energy_contrast.samplers import Staged, multistage_noise, multistage_sgld, proximal_sgld


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_step_goes_down_the_gradient_of_finite_differences_and_is_clamped_number_by_number() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double()

    def energy(x: Tensor, scale: float) -> Tensor:
        return scale * network(x.flatten(1)).squeeze(1)

    x, h, clamp = normal(4, 2, 3), 1e-6, 0.2
    gradient = torch.empty_like(x)
    for place in range(6):
        shift = torch.zeros(6, dtype=torch.float64).index_fill(0, torch.tensor(place), h).view(2, 3)
        gradient.view(4, 6)[:, place] = (energy(x + shift, 3.0) - energy(x - shift, 3.0)).detach() / (2 * h)
    assert (gradient.abs() > clamp).any()
    assert (gradient.abs() < clamp).any()
    sampler = proximal_sgld(energy, step_size=0.05, gradient_clamp=clamp, noise_std=0.3)
    noise = normal(4, 2, 3, seed=1)
    state, info = sampler.step(sampler.init(x), 3.0, noise)
    expected = x - 0.05 * gradient.clamp(-clamp, clamp) + 0.3 * noise
    torch.testing.assert_close(state.position, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(info.energy, energy(x, 3.0).detach())
    torch.testing.assert_close(info.gradient_norm, gradient.flatten(1).norm(dim=1), rtol=1e-6, atol=1e-8)


def test_the_noise_of_equation_22_by_count() -> None:
    sigma = multistage_noise(torch.arange(6), sigma_min=0.01, sigma_max=0.05, noise_decay_count=3)
    assert sigma.tolist() == pytest.approx([0.05, 0.01 + 0.04 * 2 / 3, 0.01 + 0.04 / 3, 0.01, 0.01, 0.01])
    assert [round(value, 4) for value in sigma.tolist()] == [0.05, 0.0367, 0.0233, 0.01, 0.01, 0.01]


def test_multistage_is_proximal_sgld_with_each_chains_own_noise() -> None:
    def energy(x: Tensor, _: object) -> Tensor:
        return (x**4).flatten(1).sum(1)

    x, noise, counts = normal(3, 1, 2, 2), normal(3, 1, 2, 2, seed=1), torch.tensor([0, 2, 9], dtype=torch.int32)
    sampler = multistage_sgld(
        energy, step_size=0.1, gradient_clamp=1.0, sigma_min=0.2, sigma_max=0.8, noise_decay_count=4
    )
    state, _ = sampler.step(sampler.init(x), Staged(counts, None), noise)
    for chain, sigma in enumerate([0.8, 0.5, 0.2]):
        alone = proximal_sgld(energy, step_size=0.1, gradient_clamp=1.0, noise_std=sigma)
        expected, _ = alone.step(alone.init(x[chain : chain + 1]), None, noise[chain : chain + 1])
        torch.testing.assert_close(state.position[chain : chain + 1], expected.position)
