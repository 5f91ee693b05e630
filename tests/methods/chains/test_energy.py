"""The energy that moves chains: whole, and through the first layer only."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from energy_contrast.chains.energy import ChainEnergy, marginal
from energy_contrast.energies import marginal_energy
from energy_contrast.networks import ProjectionHead, build_encoder
from energy_contrast.samplers import proximal_sgld


def networks() -> tuple[torch.nn.Module, torch.nn.Module]:
    torch.manual_seed(0)
    encoder = build_encoder("small", in_channels=2, width=4, batch_norm="none", activation="leaky_relu")
    return encoder.double(), ProjectionHead(16, 8, 4, activation="leaky_relu").double()


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradient(energy: ChainEnergy, position: Tensor, context: Tensor) -> Tensor:
    x = position.clone().requires_grad_()
    return torch.autograd.grad(energy(x, context).sum(), x)[0]


def test_the_whole_energy_is_that_of_the_projections_against_the_references() -> None:
    encoder, head = networks()
    position, references = normal(3, 2, 8, 8), normal(5, 4, seed=1)
    energy = ChainEnergy(encoder, marginal(head, temperature=0.3))
    context = energy.context(references)
    assert context(0, position) is references
    assert context(7, position) is references
    found = energy(position, context(0, position))
    torch.testing.assert_close(found, marginal_energy(head(encoder(position)), references, temperature=0.3))


def test_through_the_first_layer_the_gradient_is_the_whole_one_where_it_was_taken() -> None:
    encoder, head = networks()
    position, references = normal(3, 2, 8, 8), normal(5, 4, seed=1)
    whole = ChainEnergy(encoder, marginal(head, temperature=0.3))
    layer = ChainEnergy(encoder, marginal(head, temperature=0.3), num_inner_steps=2)
    slope = layer.context(references)(0, position)
    expected = gradient(whole, position, references)
    torch.testing.assert_close(gradient(layer, position, slope), expected, rtol=1e-10, atol=1e-12)


def test_in_between_it_is_the_adjoint_of_the_first_layer_at_the_new_position_on_the_old_slope() -> None:
    encoder, head = networks()
    position, references = normal(3, 2, 8, 8), normal(5, 4, seed=1)
    layer = ChainEnergy(encoder, marginal(head, temperature=0.3), num_inner_steps=2)
    context = layer.context(references)
    slope, moved = context(0, position), position + normal(3, 2, 8, 8, seed=2)
    assert context(1, moved) is slope
    assert context(2, moved) is not slope
    before = encoder.conv1(moved)
    leaky = torch.where(before > 0, 1.0, 0.2).double()
    expected = F.conv_transpose2d(slope * leaky, encoder.conv1.weight, padding=1)
    torch.testing.assert_close(gradient(layer, moved, slope), expected)


def test_the_inner_steps_never_pass_through_the_trunk() -> None:
    encoder, head = networks()
    passes = []
    encoder.layer1.register_forward_hook(lambda *_: passes.append(1))
    layer = ChainEnergy(encoder, marginal(head, temperature=0.3), num_inner_steps=5)
    context, position = layer.context(normal(5, 4)), normal(3, 2, 8, 8)
    for step in range(10):
        gradient(layer, position, context(step, position))
    assert len(passes) == 2


def test_neither_form_leaves_a_gradient_on_the_networks() -> None:
    encoder, head = networks()
    for num_inner_steps in (0, 2):
        energy = ChainEnergy(encoder, marginal(head, temperature=0.3), num_inner_steps=num_inner_steps)
        position = normal(3, 2, 8, 8)
        context = energy.context(normal(5, 4))(0, position)
        assert not context.requires_grad
        gradient(energy, position, context)
    assert all(weight.grad is None for network in (encoder, head) for weight in network.parameters())


@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("num_inner_steps", [0, 2])
def test_the_callers_autocast_changes_no_bit_of_a_step(num_inner_steps: int, bfloat16: bool) -> None:
    """Chains have a precision of their own, on the way back too."""
    encoder, head = (network.float() for network in networks())
    position, references = normal(3, 2, 8, 8).float(), normal(5, 4, seed=1).float()
    energy = ChainEnergy(encoder, marginal(head, temperature=0.3), num_inner_steps=num_inner_steps, bfloat16=bfloat16)
    sampler = proximal_sgld(energy, step_size=1.0, gradient_clamp=1e9, noise_std=0.0)
    ends = []
    for dtype in (None, torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            before = head(encoder(position))  # torch keeps the weights that it cast
            context = energy.context(references)(0, position)
            ends.append(sampler.step(sampler.init(position), context, torch.zeros_like(position))[0].position)
            assert torch.equal(head(encoder(position)), before)
    assert torch.equal(ends[1], ends[0])
    assert torch.equal(ends[2], ends[0])
    assert not torch.equal(ends[0], position)
