"""Samplers of unit vectors against their equations as loops, autograd, closed forms and limits."""

import math
import statistics
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from energy_contrast.samplers.particles import feature_langevin, median_bandwidth, sphere_drift, svgd
from energy_contrast.samplers.sampler import Sampler

UPDATES = ["calibrated", "printed"]
KERNELS = ["linear", "rbf"]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unit(*shape: int, seed: int = 0) -> Tensor:
    return F.normalize(normal(*shape, seed=seed), dim=1)


def move(sampler: Sampler, position: Tensor, queries: Tensor, noises: list[Tensor]) -> Tensor:
    state = sampler.init(position)
    for noise in noises:
        state, _ = sampler.step(state, queries, noise)
    return state.position


def slow_drift(b: Tensor, queries: Tensor, temperature: float) -> Tensor:
    """The listing's D without its 1/N for one particle, query by query."""
    weights = [math.exp(float(b @ q) / temperature) for q in queries]
    drift = torch.zeros_like(b)
    for weight, q in zip(weights, queries, strict=True):
        drift += weight / sum(weights) * (q - (b @ q) * b)
    return drift


@pytest.mark.parametrize("temperature", [0.02, 0.5])
def test_the_drift_is_tangent_and_tau_times_autograds_gradient_of_log_sum_exp(temperature: float) -> None:
    particles, queries = unit(6, 5).requires_grad_(), unit(9, 5, seed=1)
    log_density = torch.logsumexp(particles @ queries.T / temperature, dim=1)
    (gradient,) = torch.autograd.grad(log_density.sum(), particles)
    b = particles.detach()
    tangent = gradient - (gradient * b).sum(dim=1, keepdim=True) * b
    drift, energy = sphere_drift(b, queries, temperature=temperature)
    torch.testing.assert_close(drift, temperature * tangent)
    torch.testing.assert_close((drift * b).sum(dim=1), torch.zeros(6, dtype=torch.float64), rtol=0, atol=1e-15)
    torch.testing.assert_close(energy, -log_density.detach())


def test_a_low_temperature_does_not_overflow() -> None:
    drift, energy = sphere_drift(unit(3, 4).float(), unit(5, 4, seed=1).float(), temperature=1e-3)
    assert drift.isfinite().all()
    assert energy.isfinite().all()


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("schedule", ["inverse", "constant"])
@pytest.mark.parametrize("noise_schedule", ["step", "constant"])
def test_langevin_is_its_equation_particle_by_particle(update: str, schedule: str, noise_schedule: str) -> None:
    tau, alpha, epsilon = 0.2, 0.7, 0.4
    particles, queries, noises = unit(5, 4), unit(6, 4, seed=1), [normal(5, 4, seed=s) for s in (2, 3, 4)]
    expected = []
    for m, b in enumerate(particles):
        for i, noise in enumerate(noises, start=1):
            size = alpha / i if schedule == "inverse" else alpha
            drift = slow_drift(b, queries, tau)
            if update == "printed":
                b = b + size * drift / 6 + math.sqrt(2 * size) * noise[m]
            else:
                b = b + size * drift + epsilon * (math.sqrt(2 * size) if noise_schedule == "step" else 1) * noise[m]
            b = b / b.norm()
        expected.append(b)
    sampler = feature_langevin(
        temperature=tau,
        step_size=alpha,
        step_schedule=schedule,
        noise_intensity=epsilon,
        noise_schedule=noise_schedule,
        update=update,
    )
    torch.testing.assert_close(move(sampler, particles, queries, noises), torch.stack(expected))


def test_settings_2_and_4_of_appendix_i_are_calibrated_with_a_step_of_one_over_n() -> None:
    """The listing's drift, softmax(L) q / N - mean(softmax(L) L) b, with a step of 1 and noise of 0.03 throughout."""
    bank, queries, tau = unit(5, 4, seed=1), unit(6, 4, seed=2), 0.02
    noises = [normal(5, 4, seed=3 + i) for i in range(3)]
    own: dict[str, Any] = {"step_schedule": "constant", "noise_schedule": "constant", "noise_intensity": 0.03}
    found = move(feature_langevin(temperature=tau, step_size=1 / 6, **own), bank, queries, noises)
    for noise in noises:
        cosines = bank @ queries.T
        weights = torch.softmax(cosines / tau, dim=1)
        bank = bank + weights @ queries / 6 - (weights * cosines).mean(dim=1, keepdim=True) * bank + 0.03 * noise
        bank = bank / bank.norm(dim=1, keepdim=True)
    torch.testing.assert_close(found, bank)


def kernel_and_gradient(kernel: str, x: Tensor, y: Tensor, bandwidth: float) -> tuple[Tensor, Tensor]:
    """Return k(x, y) and, by autograd, its gradient by x."""
    x = x.clone().requires_grad_()
    value = x @ y if kernel == "linear" else torch.exp(-(x - y).square().sum() / bandwidth)
    return value.detach(), torch.autograd.grad(value, x)[0]


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_svgd_is_its_definition_pair_by_pair(update: str, kernel: str) -> None:
    tau, alpha = 0.2, 0.7
    particles, queries = unit(5, 4), unit(6, 4, seed=1)
    position = particles
    for i in (1, 2):
        gradients = [slow_drift(b, queries, tau) / (6 if update == "printed" else tau) for b in position]
        distances = sorted(float((position[i] - position[j]).square().sum()) for i in range(5) for j in range(i + 1, 5))
        bandwidth = statistics.median_low(distances) / math.log(5)
        moved = []
        for b in position:
            direction = torch.zeros(4, dtype=torch.float64)
            for other, gradient in zip(position, gradients, strict=True):
                k, slope = kernel_and_gradient(kernel, other, b, bandwidth)
                direction += (k * gradient + slope) / 5
            b = b + alpha / i * direction
            moved.append(b / b.norm())
        position = torch.stack(moved)
    sampler = svgd(temperature=tau, step_size=alpha, kernel=kernel, update=update)
    found = move(sampler, particles, queries, [torch.zeros_like(particles)] * 2)
    torch.testing.assert_close(found, position)


@pytest.mark.parametrize("count", [2, 3, 6, 7])
def test_the_bandwidth_is_the_lower_median_of_all_pairs_over_log_m(count: int) -> None:
    points = normal(count, 3)
    squared = torch.stack([torch.stack([(a - b).square().sum() for b in points]) for a in points])
    pairs = [float(squared[i, j]) for i in range(count) for j in range(i + 1, count)]
    expected = statistics.median_low(pairs) / math.log(count)
    assert median_bandwidth(squared).item() == pytest.approx(expected, rel=1e-12)


def test_the_bandwidth_of_many_particles_is_near_that_of_all_pairs() -> None:
    squared = torch.cdist(normal(600, 8), normal(600, 8)).square()
    rows, columns = torch.triu_indices(600, 600, offset=1)
    expected = squared[rows, columns].median() / math.log(600)
    assert median_bandwidth(squared).item() == pytest.approx(expected.item(), rel=0.05)


def test_the_bandwidth_of_one_particle_or_of_equal_ones_is_positive() -> None:
    assert median_bandwidth(torch.zeros(1, 1)) == 1
    assert median_bandwidth(torch.zeros(3, 3)) > 0


@pytest.mark.parametrize("spread", [0.0, 1e-3, 1e-2, 1.0])
def test_particles_that_lie_together_are_moved_in_float32_as_in_float64(spread: float) -> None:
    """Between equal particles nothing pushes; queries where they all are give a drift along the particles alone."""
    around = unit(1, 16)
    particles = F.normalize(around + spread * normal(64, 16), dim=1)
    sampler = svgd(temperature=0.2, step_size=0.1, kernel="rbf")
    exact = move(sampler, particles, around, [torch.zeros_like(particles)])
    found = move(sampler, particles.float(), around.float(), [torch.zeros_like(particles.float())])
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=2e-5)
    if not spread:
        torch.testing.assert_close(exact, particles, rtol=0, atol=1e-12)


def test_with_one_particle_rbf_svgd_is_plain_gradient_ascent() -> None:
    particle, queries, tau = unit(1, 4), unit(6, 4, seed=1), 0.3
    expected = F.normalize(particle + 0.1 * slow_drift(particle[0], queries, tau) / tau, dim=1)
    sampler = svgd(temperature=tau, step_size=0.1, kernel="rbf")
    torch.testing.assert_close(move(sampler, particle, queries, [particle]), expected)


def test_linear_svgd_as_printed_leaves_directions_almost_unchanged() -> None:
    particles, queries = unit(1024, 128), unit(256, 128, seed=1)
    sampler = svgd(temperature=0.02, update="printed", kernel="linear")
    moved = move(sampler, particles, queries, [particles] * 10)
    assert (2 * torch.asin((moved - particles).norm(dim=1) / 2)).max() < 1e-3  # radians


@pytest.mark.parametrize(("update", "low", "high"), [("printed", -0.02, 0.02), ("calibrated", 0.98, 1.0)])
def test_the_printed_noise_decorrelates_a_bank_in_one_iteration_and_the_calibrated_does_not(update, low, high):
    particles, queries = unit(1024, 128), unit(256, 128, seed=1)
    step_size = 1.0 if update == "printed" else 0.01
    sampler = feature_langevin(temperature=0.02, step_size=step_size, update=update)
    moved = move(sampler, particles, queries, [normal(1024, 128, seed=10 + s) for s in range(10)])
    assert low < (moved * particles).sum(dim=1).mean() < high


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_calibrated_langevin_samples_the_density_at_temperature_epsilon_squared(epsilon: float) -> None:
    # One query in three dimensions: the density exp(<b, q> / epsilon^2) is von Mises-Fisher with kappa = 1 / epsilon^2,
    # whose mean cosine is coth(kappa) - 1 / kappa, whatever tau is.
    kappa = 1 / epsilon**2
    query = unit(1, 3, seed=1)
    sampler = feature_langevin(temperature=0.02, step_size=0.02, step_schedule="constant", noise_intensity=epsilon)
    noises = [normal(4000, 3, seed=s) for s in range(300)]
    cosine = move(sampler, unit(4000, 3), query, noises) @ query[0]
    assert cosine.mean().item() == pytest.approx(1 / math.tanh(kappa) - 1 / kappa, abs=0.02)


def test_info_holds_the_energy_and_the_norm_of_its_true_gradient_along_the_sphere() -> None:
    query = unit(1, 4)
    particles = torch.cat([query, unit(3, 4, seed=2)])
    _, info = feature_langevin(temperature=0.25).step(
        feature_langevin(temperature=0.25).init(particles), query, torch.zeros_like(particles)
    )
    cosine = particles @ query[0]
    torch.testing.assert_close(info.gradient_norm, (1 - cosine**2).clamp_min(0).sqrt() / 0.25, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(info.energy, -cosine / 0.25)


@pytest.mark.parametrize(
    ("make", "settings", "said"),
    [
        (feature_langevin, {"update": "exact"}, "update: no such value, got 'exact'; use one of calibrated, printed"),
        (feature_langevin, {"step_schedule": "linear"}, "step_schedule: no such value, got 'linear'"),
        (feature_langevin, {"noise_schedule": "inverse"}, "noise_schedule: no such value, got 'inverse'"),
        (svgd, {"kernel": "cosine"}, "kernel: no such value, got 'cosine'; use one of linear, rbf"),
        (svgd, {"update": "exact"}, "update: no such value"),
        (svgd, {"step_schedule": "linear"}, "step_schedule: no such value"),
    ],
)
def test_an_unknown_word_is_refused_with_the_known_ones(make: object, settings: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make(temperature=0.1, **settings)


def slow_direction(
    sampler: str, update: str, b: Tensor, particles: Tensor, queries: Tensor, temperature: float
) -> Tensor:
    """Where one particle wants to go: t or t / N of Langevin dynamics, phi of SVGD with the linear kernel."""
    if sampler == "langevin":
        return slow_drift(b, queries, temperature) / (len(queries) if update == "printed" else 1)
    direction = torch.zeros_like(b)
    for other in particles:
        gradient = slow_drift(other, queries, temperature) / (len(queries) if update == "printed" else temperature)
        direction += ((other @ b) * gradient + b) / len(particles)
    return direction


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("sampler", ["langevin", "svgd"])
def test_momentum_and_weight_decay_are_those_of_sgd_before_the_return_to_the_sphere(sampler: str, update: str) -> None:
    """Particle by particle, with the velocity written out, and with torch's SGD going up the same direction."""
    tau, alpha, mu, decay, epsilon = 0.2, 0.7, 0.9, 0.3, 0.4
    queries, noises = unit(6, 4, seed=1), [normal(5, 4, seed=s) for s in (2, 3, 4)]
    slow, velocity = unit(5, 4), torch.zeros(5, 4, dtype=torch.float64)
    by_torch = nn.Parameter(unit(5, 4))
    optimizer = torch.optim.SGD([by_torch], lr=alpha, momentum=mu, weight_decay=decay, maximize=True)
    if sampler == "langevin":
        made = feature_langevin(
            temperature=tau, step_size=alpha, noise_intensity=epsilon, update=update, momentum=mu, weight_decay=decay
        )
    else:
        made = svgd(temperature=tau, step_size=alpha, update=update, momentum=mu, weight_decay=decay)
    state = made.init(unit(5, 4))
    for i, noise in enumerate(noises, start=1):
        size = alpha / i
        strength = {"langevin": (1 if update == "printed" else epsilon) * math.sqrt(2 * size), "svgd": 0}[sampler]
        moved, old = [], by_torch.detach().clone()
        for b, v, z in zip(slow, velocity, noise, strict=True):
            v.copy_(mu * v + slow_direction(sampler, update, b, slow, queries, tau) - decay * b)
            b = b + size * v + strength * z
            moved.append(b / b.norm())
        slow = torch.stack(moved)
        by_torch.grad = torch.stack([slow_direction(sampler, update, b, old, queries, tau) for b in old])
        optimizer.param_groups[0]["lr"] = size
        optimizer.step()
        with torch.no_grad():
            by_torch.copy_(F.normalize(by_torch + strength * noise, dim=1))
        state, _ = made.step(state, queries, noise)
        torch.testing.assert_close(state.position, slow)
        torch.testing.assert_close(state.position, by_torch.detach())
    assert state.velocity is not None
    torch.testing.assert_close(state.velocity, velocity * (6 if (sampler, update) == ("langevin", "printed") else 1))
