"""What a trace of chains shows: every moment against the moves written out, every energy against the method's own."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from energy_contrast.catalog import METHODS
from energy_contrast.chains.chains import Chains, move_chains
from energy_contrast.chains.energy import ChainEnergy
from energy_contrast.chains.trace import trace_chains
from energy_contrast.networks import build_encoder
from energy_contrast.samplers import multistage_sgld
from energy_contrast.sampling_method import ChainStart

from ..conftest import built, random_batch, small_encoder

SMALL = {"ebclr": {"buffer_size": 8, "projection_size": 4}, "jem": {"buffer_size": 8}, "vem-image": {"bank_size": 8}}


def test_a_long_chain_moves_as_one_that_always_comes_back_from_the_buffer() -> None:
    """E(x) = |x - r|^2 / 2 has the gradient x - r: x <- x - alpha (x - r) + sigma(kappa) n, kappa up every T steps."""

    def half_square(images: Tensor, centre: Tensor) -> Tensor:
        return (images - centre).square().sum(dim=1) / 2

    energy = ChainEnergy(nn.Flatten(), half_square)
    sampler = multistage_sgld(
        energy, step_size=0.3, gradient_clamp=math.inf, sigma_min=0.0, sigma_max=0.5, noise_decay_count=2
    )
    position = torch.randn(4, 1, 2, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    start = ChainStart(position, torch.tensor([0, 0, 1, 7], dtype=torch.int32))
    centre, seen = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64), list[int]()
    noises, steps = torch.Generator().manual_seed(2), (0, 2, 7)
    trace = trace_chains(sampler, energy, start, centre, noises, steps, num_steps=3, on_step=seen.append)

    generator, x, moments = torch.Generator().manual_seed(2), position, {0: position}
    for step in range(7):
        noise = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        counts = [count + step // 3 for count in (0, 0, 1, 7)]
        widths = torch.tensor([0.5 * max(0, 1 - count / 2) for count in counts], dtype=torch.float64)
        x = x - 0.3 * (x - centre.view(1, 2, 2)) + widths.view(4, 1, 1, 1) * noise
        moments[step + 1] = x
    assert (trace.steps, seen) == (steps, [1, 2, 3, 4, 5, 6, 7])
    torch.testing.assert_close(trace.positions, torch.stack([moments[step] for step in steps]))
    for position, energies in zip(trace.positions, trace.energies, strict=True):
        expected = [sum((a - b) ** 2 for a, b in zip(x.flatten(), centre, strict=True)).item() / 2 for x in position]
        assert energies.tolist() == pytest.approx(expected)


def test_chains_that_hold_a_slope_move_as_in_training_whatever_snapshots_are_taken() -> None:
    torch.manual_seed(0)
    encoder = build_encoder("resnet18", in_channels=1, width=4, batch_norm="none")
    energy = ChainEnergy(encoder, lambda embedding, _: embedding.square().sum(dim=1), num_inner_steps=2)
    sampler = multistage_sgld(
        energy, step_size=0.3, gradient_clamp=1.0, sigma_min=0.1, sigma_max=0.1, noise_decay_count=1
    )
    position, counts = torch.randn(2, 1, 8, 8), torch.zeros(2, dtype=torch.int32)
    chains = Chains(torch.arange(2), counts, position, counts > 0)
    generator = torch.Generator().manual_seed(2)
    expected, _ = move_chains(sampler, chains, energy.context(None), generator, num_steps=4)
    start = ChainStart(position, counts)
    for steps in ((4,), (0, 1, 3, 4)):
        trace = trace_chains(sampler, energy, start, None, torch.Generator().manual_seed(2), steps, num_steps=4)
        assert torch.equal(trace.positions[-1], expected.position)


@pytest.mark.parametrize(
    ("name", "settings", "reference_views", "constant"),
    [
        ("ebclr", {}, (1,), 0.0),
        ("ebclr", {"references": "both-views"}, (0, 1), 0.0),
        ("jem", {}, (0,), 0.0),
        ("vem-image", {"bank_temperature": 0.25}, (0,), 4.0),  # |u - q|^2 / (2 tau) = (1 - <u, q>) / tau
    ],
)
def test_a_trace_shows_the_energies_that_the_method_gives_its_images(name, settings, reference_views, constant):
    classes = (3,) if METHODS[name].needs_labels else ()
    method = built(METHODS[name], small_encoder(batch_norm="none"), *classes, **SMALL[name], **settings)
    batch = replace(random_batch(4), labels=torch.arange(4) % 3)
    views = batch.views
    start = ChainStart(views[0] / 2, torch.zeros(4, dtype=torch.int32))
    trace = method.trace_chains(batch, start, torch.Generator().manual_seed(2), (0, 2, 4))
    assert torch.equal(trace.positions[0], views[0] / 2)
    assert not torch.equal(trace.positions[1], trace.positions[2])
    with torch.no_grad():
        references = method.encode_references(torch.cat([views[number] for number in reference_views]))
        for position, energies in zip(trace.positions, trace.energies, strict=True):
            torch.testing.assert_close(energies, method.image_energy(position, references) + constant)
