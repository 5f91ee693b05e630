"""Samplers of unit vectors: a bank of particles that moves to where queries are dense, without autograd.

Shapes: M particles, N queries, P size of a vector.

The target density of a particle b on the unit sphere is ``p(b) ~ sum_n exp(<b, q_n> / tau)``. With the weights
``w_n = softmax_n(<b, q_n> / tau)`` and the weighted mean of queries ``m = sum_n w_n q_n``, the gradient of its
logarithm along the sphere has a closed form,

    grad log p(b) = t / tau,    t = m - <m, b> b,    |t| <= 1

so that a step is two matrix products. Both updates move along t and differ in how they scale it:

- ``printed``: VEM's listings take ``D = t / N`` for the gradient, which is tau / N times the true one, and give
  Langevin's noise full strength. What they sample is ``p^(tau / N)``: at N = 256 and tau = 0.02, the uniform density.
- ``calibrated``: Langevin moves by alpha_i t, a step of length tau alpha_i along the true gradient, with noise of the
  same step scaled by epsilon; it samples ``p^(tau / epsilon^2)``. SVGD takes the true gradient.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from energy_contrast.samplers.sampler import Sampler, SamplerInfo, SamplerState, init_state, root_mean_square
from energy_contrast.settings import require_word

UPDATES = ("calibrated", "printed")
SCHEDULES = ("inverse", "constant")
KERNELS = ("linear", "rbf")
MEDIAN_OF = 256  # particles whose median distance sets the bandwidth; that of all would cost more than the step


def sphere_drift(particles: Tensor, queries: Tensor, *, temperature: float) -> tuple[Tensor, Tensor]:
    """Return tau times the gradient of log-sum-exp along the sphere, and minus log-sum-exp itself.

    ``t = m - <m, b> b`` with ``m = sum_n w_n q_n``, ``w = softmax_n(<b, q_n> / tau)``: the direction in which unit
    vectors b approach the queries near them. ``E = -log sum_n exp(<b, q_n> / tau)``.

    Args:
        particles: b, (M, P) unit vectors.
        queries: q, (N, P) unit vectors.
        temperature: tau, divides cosine similarities.

    Returns:
        t (M, P), of norm at most 1, and E (M,) in nats.

    >>> drift, energy = sphere_drift(torch.eye(2), torch.tensor([[1.0, 0.0]]), temperature=0.5)
    >>> drift.tolist(), energy.tolist()
    ([[0.0, 0.0], [1.0, 0.0]], [-2.0, -0.0])

    Source: VEM, algorithms 1 and 2, their bank update without its factor 1/N.
    """
    logits = particles @ queries.T / temperature  # (M, N)
    highest = logits.amax(dim=1, keepdim=True)
    weights = torch.exp(logits - highest)  # (M, N), divided by its sum below
    total = weights.sum(dim=1, keepdim=True)  # (M, 1)
    mean = weights @ queries / total  # (M, P)
    drift = mean - (mean * particles).sum(dim=1, keepdim=True) * particles
    return drift, -(highest + total.log()).squeeze(1)


def feature_langevin(
    *,
    temperature: float,
    step_size: float | Tensor = 0.01,
    step_schedule: str = "inverse",
    noise_intensity: float = 0.03,
    noise_schedule: str = "step",
    update: str = "calibrated",
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> Sampler:
    """Return Langevin dynamics of unit vectors among queries.

    ``b <- (b + alpha_i t + epsilon sqrt(2 alpha_i) z) / |...|`` in step i = 1, 2, ... with t of ``sphere_drift``;
    ``printed``: ``b <- (b + alpha_i t / N + sqrt(2 alpha_i) z) / |...|``. With momentum or weight decay, the v of
    ``accelerate`` replaces t or t / N; the noise is not part of it.

    Args:
        temperature: tau, divides cosine similarities.
        step_size: alpha, first step.
        step_schedule: ``inverse``: alpha_i = alpha / i; ``constant``: alpha_i = alpha.
        noise_intensity: epsilon; ``printed`` does not use it.
        noise_schedule: ``step``: noise of standard deviation epsilon sqrt(2 alpha_i); ``constant``: epsilon.
        update: ``calibrated`` or ``printed``.
        momentum: mu, share of the velocity that a step keeps, in [0, 1).
        weight_decay: lambda, pulls particles towards 0.

    Returns:
        A sampler; its context is the queries (N, P), unit vectors.

    Raises:
        ValueError: If ``step_schedule``, ``noise_schedule`` or ``update`` is unknown.

    >>> sampler = feature_langevin(temperature=0.1, step_size=1.0, noise_intensity=0.0)
    >>> start = sampler.init(torch.tensor([[0.0, 1.0]]))
    >>> state, _ = sampler.step(start, torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2))
    >>> state.position  # step 1 of size 1 goes half the way
    tensor([[0.7071, 0.7071]])

    Source: VEM, algorithm 1, lines 8 to 15, and eq. 8, 10 and 11.
    Departs from the paper: ``calibrated``, the default, is not the listing; see the top of this file. The noise
    intensity is among the listing's inputs and in eq. 8 and 11, but not in its update. Four equations are misprinted,
    and the listing, which is right, is followed: eq. 8, 9 and 11 have the logarithm of a sum of similarities, which is
    undefined where the sum is negative, for that of their exponentials; eq. 10 has +sim for -sim, so that similar
    vectors would have high energy; for the rest of eq. 9 see ``svgd``. Settings (2) and (4) of appendix I, a step of 1
    with noise of 0.03, are no listing: with the listing's drift t / N they are ``calibrated`` with ``step_size`` 1 / N,
    both schedules ``constant`` and ``noise_intensity`` 0.03. Momentum and weight decay are in appendix D, not in the
    listing.
    """
    require_word("update", update, UPDATES)
    require_word("step_schedule", step_schedule, SCHEDULES)
    require_word("noise_schedule", noise_schedule, ("step", "constant"))

    def step(state: SamplerState, queries: Tensor, noise: Tensor) -> tuple[SamplerState, SamplerInfo]:
        with torch.no_grad():
            drift, energy = sphere_drift(state.position, queries, temperature=temperature)
            size = _scheduled(step_size, step_schedule, state)
            printed = update == "printed"
            spread = torch.sqrt(2 * size) if printed or noise_schedule == "step" else torch.ones_like(size)
            count = len(queries) if printed else 1  # t is N times the listing's gradient, t / N
            along, velocity = accelerate(state, drift, momentum=momentum, weight_decay=count * weight_decay)
            length = size / count if printed else size
            moved = along * length + (1.0 if printed else noise_intensity) * spread * noise
            return _arrive(state, moved, velocity, energy, drift.norm(dim=1) / temperature)

    return Sampler(init_state, step)


def svgd(
    *,
    temperature: float,
    step_size: float | Tensor = 1.0,
    step_schedule: str = "inverse",
    kernel: str = "linear",
    update: str = "calibrated",
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> Sampler:
    """Return Stein variational gradient descent of unit vectors among queries.

    ``b_j <- (b_j + alpha_i phi_j) / |...|`` with ``phi_j = 1/M sum_i (k(b_i, b_j) g_i + grad_i k(b_i, b_j))``;
    g = t / tau of ``sphere_drift``, or t / N if ``printed``, and the kernels

    - ``linear``: ``k(b_i, b_j) = <b_i, b_j>``, so that ``phi = B (B^T G) / M + B`` costs O(M P^2). The repulsion B is
      radial: it shortens the steps and does not separate particles.
    - ``rbf``: ``k(b_i, b_j) = exp(-|b_i - b_j|^2 / h)`` with h of ``median_bandwidth``, O(M^2 P).

    With momentum or weight decay, the v of ``accelerate`` replaces phi.

    Args:
        temperature: tau, divides cosine similarities.
        step_size: alpha, first step.
        step_schedule: ``inverse``: alpha_i = alpha / i; ``constant``: alpha_i = alpha.
        kernel: ``linear`` or ``rbf``.
        update: ``calibrated`` or ``printed``.
        momentum: mu, share of the velocity that a step keeps, in [0, 1).
        weight_decay: lambda, pulls particles towards 0.

    Returns:
        A sampler without randomness; its context is the queries (N, P), unit vectors.

    Raises:
        ValueError: If ``step_schedule``, ``kernel`` or ``update`` is unknown.

    >>> sampler = svgd(temperature=1.0)
    >>> start = sampler.init(torch.tensor([[0.0, 1.0]]))
    >>> state, _ = sampler.step(start, torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2))
    >>> state.position  # one particle: half of its gradient, as the repulsion doubles the length before
    tensor([[0.4472, 0.8944]])

    Source: VEM, algorithm 2 (linear kernel) and eq. 9 (RBF); Liu and Wang 2016 (arXiv:1608.04471), eq. 8.
    Departs from the paper: ``calibrated``, the default, takes the true gradient, N / tau times the listing's. Eq. 9 is
    misprinted: it takes both gradients at b_j, the particle that moves, not at each b_i, so that the kernel would only
    scale a particle's own gradient, and particles would attract each other; it uses i for particles and for queries,
    and has the logarithm of eq. 8 (see ``feature_langevin``). The listing's kernel shares the gradients of all b_i.
    Momentum and weight decay are in appendix D, not in the listing.
    """
    require_word("update", update, UPDATES)
    require_word("step_schedule", step_schedule, SCHEDULES)
    require_word("kernel", kernel, KERNELS)
    direction = _linear_direction if kernel == "linear" else _rbf_direction

    def step(state: SamplerState, queries: Tensor, noise: Tensor) -> tuple[SamplerState, SamplerInfo]:
        with torch.no_grad():
            drift, energy = sphere_drift(state.position, queries, temperature=temperature)
            gradient = drift / (len(queries) if update == "printed" else temperature)
            phi = direction(state.position, gradient)
            along, velocity = accelerate(state, phi, momentum=momentum, weight_decay=weight_decay)
            moved = _scheduled(step_size, step_schedule, state) * along
            return _arrive(state, moved, velocity, energy, drift.norm(dim=1) / temperature)

    return Sampler(init_state, step)


def accelerate(
    state: SamplerState, direction: Tensor, *, momentum: float, weight_decay: float
) -> tuple[Tensor, Tensor | None]:
    """Return the direction of a step after the momentum and weight decay of SGD.

    ``v <- mu v + phi - lambda b``

    Args:
        state: Position b and velocity v, (M, P); a velocity of None is 0.
        direction: phi, (M, P), of ascent.
        momentum: mu, share of the velocity that is kept; 0 keeps none.
        weight_decay: lambda.

    Returns:
        v (M, P), and the velocity for the next step: v, or None without momentum.

    >>> state = SamplerState(torch.zeros(1, 2), torch.tensor(0), torch.ones(1, 2))
    >>> accelerate(state, torch.tensor([[1.0, 0.0]]), momentum=0.5, weight_decay=0.0)[0]
    tensor([[1.5000, 0.5000]])

    Source: VEM, appendix D, which trains the bank by SGD; the form is that of torch.optim.SGD.
    Departs from the paper: it does not say whether the velocity turns with a particle that moves along the sphere; here
    it does not.
    """
    if weight_decay:
        direction = direction - weight_decay * state.position
    if not momentum:
        return direction, None
    velocity = direction if state.velocity is None else momentum * state.velocity + direction
    return velocity, velocity


def median_bandwidth(squared_distances: Tensor) -> Tensor:
    """Return the bandwidth at which a particle's kernel with all others sums to about 1.

    ``h = median_{i < j} |b_i - b_j|^2 / log M`` over pairs of the first 256 particles, the lower median if their number
    is even; 1 for a single particle.

    Args:
        squared_distances: (M, M).

    Returns:
        () in the unit of the squared distances, positive.

    >>> median_bandwidth(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    tensor(1.4427)

    Source: Liu and Wang 2016 (arXiv:1608.04471), section 5.
    Departs from the paper: there the median is that of all particles.
    """
    if len(squared_distances) == 1:
        return torch.ones_like(squared_distances[0, 0])
    few = squared_distances[:MEDIAN_OF, :MEDIAN_OF]
    m = len(few)
    # The flattened m x m diagonal has stride m + 1: without the first element, it is the last column of m - 1 rows.
    pairs = few.flatten()[1:].view(m - 1, m + 1)[:, :-1]
    return (pairs.median() / math.log(len(squared_distances))).clamp_min(torch.finfo(few.dtype).eps)


def _linear_direction(particles: Tensor, gradient: Tensor) -> Tensor:
    return particles @ (particles.T @ gradient) / len(particles) + particles


def _rbf_direction(particles: Tensor, gradient: Tensor) -> Tensor:
    centred = particles - particles.mean(dim=0)  # differences of near particles keep their digits, equal ones are 0
    length = centred.square().sum(dim=1)
    squared = (length[:, None] + length - 2 * centred @ centred.T).clamp_min(0)  # (M, M)
    bandwidth = median_bandwidth(squared)
    kernel = torch.exp(-squared / bandwidth)
    shared, mean = (kernel @ torch.cat([gradient, centred], dim=1)).chunk(2, dim=1)  # (M, P) twice
    repulsion = 2 / bandwidth * (kernel.sum(dim=1, keepdim=True) * centred - mean)
    return (shared + repulsion) / len(particles)


def _scheduled(step_size: float | Tensor, schedule: str, state: SamplerState) -> Tensor:
    """Return alpha_i, (), of the step that follows ``state``."""
    alpha = torch.ones_like(state.num_steps, dtype=state.position.dtype) * step_size
    return alpha / (state.num_steps + 1) if schedule == "inverse" else alpha


def _arrive(
    state: SamplerState, moved: Tensor, velocity: Tensor | None, energy: Tensor, gradient_norm: Tensor
) -> tuple[SamplerState, SamplerInfo]:
    """Return the state after a move, projected onto the sphere, and the step's info."""
    position = F.normalize(state.position + moved, dim=1)
    info = SamplerInfo(energy, gradient_norm, root_mean_square(position - state.position))
    return SamplerState(position, state.num_steps + 1, velocity), info
