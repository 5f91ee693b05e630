"""The particle bank: what it begins with, and that it is part of a module's state."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from energy_contrast.memory.particle_bank import CHUNK, ParticleBank


def bank(size: int, vector_size: int = 4, seed: int = 0) -> ParticleBank:
    torch.manual_seed(seed)
    return ParticleBank(size, vector_size)


def draw(count: int, generator: torch.Generator) -> Tensor:
    return torch.randn(count, 1, 2, 2, generator=generator)


def test_a_new_bank_holds_unit_vectors_that_the_seed_decides() -> None:
    new = bank(500)
    torch.testing.assert_close(new.particles.norm(dim=1), torch.ones(500))
    assert torch.equal(new.particles, bank(500).particles)
    assert not torch.equal(new.particles, bank(500, seed=1).particles)
    # Spread evenly: no direction is preferred, every axis has mean square 1 / P.
    torch.testing.assert_close(new.particles.mean(dim=0), torch.zeros(4), rtol=0, atol=0.1)
    torch.testing.assert_close(new.particles.square().mean(dim=0), torch.full((4,), 0.25), rtol=0, atol=0.05)


@pytest.mark.parametrize("size", [0, 1])
def test_fewer_than_two_particles_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"bank_size: a bank needs two particles, got {size}; use 2 or more"):
        ParticleBank(size, 4)


def test_stored_particles_are_copies_and_travel_with_the_state() -> None:
    first, second = bank(3), bank(3, seed=1)
    particles = F.normalize(torch.arange(12.0).view(3, 4) + 1, dim=1)
    first.store(particles)
    expected = particles.clone()
    particles.zero_()
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.particles, expected)
    assert second.double().particles.dtype == torch.float64
    assert not list(first.parameters())  # nothing that an optimizer could move


@pytest.mark.parametrize("size", [2, CHUNK, CHUNK + 1, 2 * CHUNK + 1])
def test_a_filled_bank_holds_the_directions_of_views_of_every_part(size: int) -> None:
    torch.manual_seed(3)
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 4))
    counts: list[int] = []

    def counting(count: int, generator: torch.Generator) -> Tensor:
        counts.append(count)
        return draw(count, generator)

    filled = bank(size)
    filled.fill(network, counting, torch.Generator().manual_seed(7))
    assert sum(counts) == size
    assert 2 <= min(counts) <= max(counts) <= CHUNK
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        expected = torch.cat([network(draw(count, generator)) for count in counts])
    torch.testing.assert_close(filled.particles, expected / expected.norm(dim=1, keepdim=True))
    assert not filled.particles.requires_grad


def test_filling_keeps_the_banks_dtype() -> None:
    filled = bank(5).double()
    filled.fill(nn.Flatten(), draw, torch.Generator())
    assert filled.particles.dtype == torch.float64


def test_only_a_moving_bank_has_a_velocity_which_is_part_of_its_state() -> None:
    torch.manual_seed(0)
    moving, other = ParticleBank(3, 4, moving=True), ParticleBank(3, 4, moving=True)
    assert list(bank(3).state_dict()) == ["particles"]
    assert torch.equal(moving.velocity, torch.zeros(3, 4))
    velocity = torch.arange(12.0).view(3, 4)
    moving.store(moving.particles.clone(), velocity)
    expected = velocity.clone()
    velocity.zero_()
    other.load_state_dict(moving.state_dict())
    assert torch.equal(other.velocity, expected)
