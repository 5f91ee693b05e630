"""What every sampler is: a pair of pure functions that move points towards low energy.

Shapes: N points, ... shape of one point (an image C, H, W; a unit vector P).

A factory such as ``proximal_sgld(energy, step_size=...)`` captures what stays the same for a run and returns a
``Sampler``. What changes from step to step (references, queries, counts) is the ``context`` argument. Randomness is an
argument too: the caller draws standard normal numbers for the global batch and passes each rank its share.

What every sampler guarantees, and one test checks for all of them:

- ``step`` returns positions of the same shape, dtype and device and changes none of its arguments;
- the same state, context and noise give the same bits;
- it works under ``torch.no_grad`` and inside a forward pass that is being differentiated, and leaves no gradient on a
  network: what it returns is detached;
- without gradient, noise and velocity nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class SamplerState(NamedTuple):
    """State of a sampler between steps.

    Attributes:
        position: (N, ...) detached; what the sampler moves.
        num_steps: () int64 on the position's device; steps made since ``init``. A tensor, so that a step size that
            depends on it needs no synchronisation and compiles once.
        velocity: (N, ...) velocity of a sampler with momentum; None before its first step, and for other samplers.
    """

    position: Tensor
    num_steps: Tensor
    velocity: Tensor | None = None


class SamplerInfo(NamedTuple):
    """What a step reports beside the new state; all detached.

    Attributes:
        energy: (N,) energy of each point before the step, up to a constant.
        gradient_norm: (N,) Euclidean norm of the energy's gradient by the point, before any clamp; on a sphere, of
            its tangent part.
        movement: (N,) root mean square, over a point's coordinates, of how far the step moved it.
    """

    energy: Tensor
    gradient_norm: Tensor
    movement: Tensor


class Sampler(NamedTuple):
    """A sampler.

    Attributes:
        init: ``init(position) -> state``, with position (N, ...).
        step: ``step(state, context, noise) -> (state, info)``, with noise (N, ...) standard normal numbers of the
            position's shape, dtype and device; a sampler without noise ignores it.
    """

    init: Callable[[Tensor], SamplerState]
    step: Callable[[SamplerState, Any, Tensor], tuple[SamplerState, SamplerInfo]]


def init_state(position: Tensor) -> SamplerState:
    """Return the state before the first step: an ``init`` for samplers that prepare nothing.

    ``(x, 0)``

    Args:
        position: (N, ...) points.

    Returns:
        The state; its position shares memory with the argument, which no step changes.

    >>> init_state(torch.zeros(2, 3)).num_steps
    tensor(0)

    Source: ours.
    """
    return SamplerState(position.detach(), torch.zeros((), dtype=torch.int64, device=position.device))


def root_mean_square(moved: Tensor) -> Tensor:
    """Return the root mean square of each point's coordinates: ``sqrt(mean_k moved_nk^2)``.

    Args:
        moved: (N, ...) by how much each coordinate of each point moved.

    Returns:
        (N,) in the coordinates' unit.

    >>> root_mean_square(torch.tensor([[3.0, 4.0]])) ** 2
    tensor([12.5000])

    Source: ours.
    """
    return moved.flatten(1).square().mean(dim=1).sqrt()
