"""Langevin dynamics on images: down the energy's gradient, with noise.

Shapes: N chains, ... shape of one chain (C, H, W).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from energy_contrast.samplers.sampler import Sampler, SamplerInfo, SamplerState, init_state, root_mean_square

Energy = Callable[[Tensor, Any], Tensor]
"""``energy(position, context)`` returns the energies (N,) of N positions; each depends on its own position alone."""


class Staged(NamedTuple):
    """The context of ``multistage_sgld``.

    Attributes:
        counts: (N,) how often each chain has been started before.
        context: Second argument of the energy.
    """

    counts: Tensor
    context: Any


def proximal_sgld(energy: Energy, *, step_size: float | Tensor, gradient_clamp: float, noise_std: float) -> Sampler:
    """Return Langevin dynamics with an element-wise clamped gradient.

    ``x <- x - alpha clamp(grad E(x), -delta, delta) + sigma n`` with standard normal n.

    Args:
        energy: E; called with the positions and the step's context.
        step_size: alpha, multiplies the gradient.
        gradient_clamp: delta, largest absolute value of an element of the gradient.
        noise_std: sigma, in the unit of the positions.

    Returns:
        The sampler; ``info.energy`` is E before the step.

    >>> sampler = proximal_sgld(lambda x, _: x.square().sum(1), step_size=0.1, gradient_clamp=1.0, noise_std=0.0)
    >>> sampler.step(sampler.init(torch.tensor([[2.0, 0.25]])), None, torch.zeros(1, 2))[0].position
    tensor([[1.9000, 0.2000]])

    Source: EBCLR (arXiv:2202.04933), eq. 5 and 21; JEM++ (arXiv:2109.09032).
    """

    def step(state: SamplerState, context: Any, noise: Tensor) -> tuple[SamplerState, SamplerInfo]:
        energies, gradient = _differentiate(energy, state.position, context)
        return _move(state, energies, gradient, step_size, gradient_clamp, noise_std * noise)

    return Sampler(init_state, step)


def multistage_sgld(
    energy: Energy,
    *,
    step_size: float | Tensor,
    gradient_clamp: float,
    sigma_min: float,
    sigma_max: float,
    noise_decay_count: int,
) -> Sampler:
    """Return proximal SGLD whose noise decreases with the number of times that a chain has been started.

    ``x <- x - alpha clamp(grad E(x), -delta, delta) + sigma n`` with the sigma of ``multistage_noise``, constant within
    one start: young chains explore, old ones settle.

    Args:
        energy: E; called with the positions and ``context.context``.
        step_size: alpha, multiplies the gradient.
        gradient_clamp: delta, largest absolute value of an element of the gradient.
        sigma_min: Noise of chains that were started K times or more, in the unit of the positions.
        sigma_max: Noise of chains that were never started before.
        noise_decay_count: K.

    Returns:
        The sampler, whose context is a ``Staged``; ``info.energy`` is E before the step.

    >>> sampler = multistage_sgld(lambda x, _: 0 * x.sum(1), step_size=0.1, gradient_clamp=1.0, sigma_min=0.0,
    ...                           sigma_max=0.5, noise_decay_count=2)
    >>> context = Staged(torch.tensor([0, 1, 2]), None)
    >>> sampler.step(sampler.init(torch.zeros(3, 1)), context, torch.ones(3, 1))[0].position.T
    tensor([[0.5000, 0.2500, 0.0000]])

    Source: EBCLR (arXiv:2202.04933), algorithm 1 and eq. 22.
    """

    def step(state: SamplerState, context: Staged, noise: Tensor) -> tuple[SamplerState, SamplerInfo]:
        energies, gradient = _differentiate(energy, state.position, context.context)
        sigma = multistage_noise(
            context.counts, sigma_min=sigma_min, sigma_max=sigma_max, noise_decay_count=noise_decay_count
        )
        sigma = sigma.to(noise.dtype).view(-1, *(1,) * (noise.dim() - 1))  # (N, 1, ...)
        return _move(state, energies, gradient, step_size, gradient_clamp, sigma * noise)

    return Sampler(init_state, step)


def multistage_noise(counts: Tensor, *, sigma_min: float, sigma_max: float, noise_decay_count: int) -> Tensor:
    """Return the noise of each chain: ``sigma_min + (sigma_max - sigma_min) max(0, 1 - kappa / K)``.

    Args:
        counts: kappa, (N,) how often each chain has been started before.
        sigma_min: Noise of chains that were started K times or more, in the unit of the positions.
        sigma_max: Noise of chains that were never started before.
        noise_decay_count: K, at least 1.

    Returns:
        (N,) float64 standard deviations.

    >>> multistage_noise(torch.tensor([0, 3, 9]), sigma_min=0.01, sigma_max=0.05, noise_decay_count=3).tolist()
    [0.05, 0.01, 0.01]

    Source: EBCLR (arXiv:2202.04933), eq. 22.
    """
    young = (1 - counts.double() / noise_decay_count).clamp_min(0)
    return sigma_min + (sigma_max - sigma_min) * young


def _differentiate(energy: Energy, position: Tensor, context: Any) -> tuple[Tensor, Tensor]:
    """Return the energies (N,) and their gradient (N, ...) by the position alone."""
    with torch.enable_grad():
        moving = position.detach().requires_grad_()
        energies = energy(moving, context)
        total = energies.sum()
    with torch.autocast(position.device.type, enabled=False):  # autocast would also round the backward products
        (gradient,) = torch.autograd.grad(total, moving)
    return energies.detach(), gradient


def _move(
    state: SamplerState,
    energies: Tensor,
    gradient: Tensor,
    step_size: float | Tensor,
    gradient_clamp: float,
    noise: Tensor,
) -> tuple[SamplerState, SamplerInfo]:
    """Return the state and info after one step; ``noise`` is already scaled by its standard deviation."""
    moved = noise - step_size * gradient.clamp(-gradient_clamp, gradient_clamp)
    info = SamplerInfo(energies, gradient.flatten(1).norm(dim=1), root_mean_square(moved))
    return SamplerState(state.position + moved, state.num_steps + 1), info
