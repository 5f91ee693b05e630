"""LeJEPA and VISReg against loops of their equations, and the statistic against what is known of it."""

import cmath
import math
from statistics import NormalDist

import pytest
import torch
from torch import Tensor

from energy_contrast.losses import info_nce, pair_similarities
from energy_contrast.predictive.lejepa import (
    Lejepa,
    characteristic_function,
    draw_directions,
    epps_pulley,
    off_scale,
    off_shape,
)

from ..conftest import assert_same_loss, built, random_batch

SIZE, SLICES, KNOTS = 5, 4, 6


def build(**settings: object) -> Lejepa:
    return built(Lejepa, **{"projection_size": 3, "num_slices": SLICES, "num_knots": KNOTS, **settings})  # type: ignore[no-any-return]


def slow_statistic(values: list[Tensor], largest: float, knots: int) -> Tensor:
    """Return the statistic of some numbers by the trapezoidal rule over both signs of the frequency."""
    step, total = largest / (knots - 1), torch.zeros((), dtype=torch.float64)
    for k in range(-knots + 1, knots):
        t, normal = k * step, math.exp(-((k * step) ** 2) / 2)
        real = sum(torch.cos(x * t) for x in values) / len(values)
        imaginary = sum(torch.sin(x * t) for x in values) / len(values)
        share = 0.5 if abs(k) == knots - 1 else 1.0
        total = total + share * step * ((real - normal) ** 2 + imaginary**2) * normal
    return len(values) * total


def slow_visreg(view: Tensor, slices: Tensor) -> Tensor:
    """Return how far one view's projections are off centre, scale and shape."""
    count, size = view.shape
    means = [sum(view[i, j] for i in range(count)) / count for j in range(size)]
    stds = [torch.sqrt(sum((view[i, j] - means[j]) ** 2 for i in range(count)) / count) for j in range(size)]
    total = sum(mean**2 for mean in means) / size + sum((1 - std) ** 2 for std in stds) / size
    for direction in slices.T:
        along = [
            sum(direction[j] * (view[i, j] - means[j]) / (stds[j].detach() + 1e-4) for j in range(size))
            for i in range(count)
        ]
        for i, x in enumerate(sorted(along, key=Tensor.item)):
            total = total + (x - NormalDist().inv_cdf((i + 1) / (count + 1))) ** 2 / count / slices.shape[1]
    return total


@pytest.mark.parametrize("regularizer", ["sigreg", "visreg"])
@pytest.mark.parametrize("num_views", [2, 3])
def test_loss_and_gradients_are_the_papers(regularizer: str, num_views: int) -> None:
    method = build(regularizer=regularizer, regularizer_weight=0.3, num_views=num_views, largest_frequency=2.0)
    batch = random_batch(SIZE, num_views=num_views)
    output = method(batch, torch.Generator().manual_seed(2))
    views = list(method.head(method.encoder(batch.views.flatten(0, 1))).split(SIZE))
    slices = draw_directions(SLICES, views[0], torch.Generator().manual_seed(2))
    terms = []
    for view in views:
        if regularizer == "visreg":
            terms.append(slow_visreg(view, slices))
        else:
            terms += [slow_statistic(list(view @ direction), 2.0, KNOTS) for direction in slices.T]
    centre = sum(views) / num_views
    prediction = sum(((view - centre) ** 2).sum() for view in views) / (num_views * SIZE * 3)
    expected = 0.7 * prediction + 0.3 * sum(terms) / len(terms)
    assert_same_loss(output.loss, expected, method)
    torch.testing.assert_close(output.metrics["prediction"], prediction.detach(), rtol=1e-10, atol=0)
    readable = info_nce(*pair_similarities(*views[:2]), temperature=0.2).detach()
    torch.testing.assert_close(output.metrics["info_nce"], readable, rtol=1e-10, atol=0)


def test_the_characteristic_function_is_a_mean_of_turns() -> None:
    found = characteristic_function(torch.tensor([[0.5], [-2.0]], dtype=torch.float64), torch.tensor([0.0, 1.7]))
    expected = (cmath.exp(0.5j * 1.7) + cmath.exp(-2j * 1.7)) / 2
    assert torch.complex(*found)[0, 0].item() == 1
    assert torch.complex(*found)[0, 1].item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("count", [16, 256])
def test_a_perfect_gaussian_has_the_same_noise_floor_at_every_batch_size(count: int) -> None:
    """E |phi - exp(-t^2/2)|^2 = (1 - exp(-t^2)) / B, whose integral with the weight is sqrt(2 pi) (1 - 1 / sqrt(3))."""
    frequencies = torch.linspace(0, 8, 65, dtype=torch.float64)
    generator = torch.Generator().manual_seed(count)
    values = torch.randn(count, 1000, generator=generator, dtype=torch.float64)
    statistics = epps_pulley(characteristic_function(values, frequencies), frequencies, count)
    floor = math.sqrt(2 * math.pi) * (1 - 1 / math.sqrt(3))
    assert statistics.mean().item() == pytest.approx(floor, abs=5 * statistics.std().item() / math.sqrt(1000))
    assert statistics.std().item() < 1.5  # so that the line above says something


def test_one_point_gives_the_closed_form() -> None:
    """phi = 1 everywhere: B int (1 - g)^2 g, g = exp(-t^2 / 2), is B sqrt(2 pi) (1 - sqrt(2) + 1 / sqrt(3))."""
    frequencies = torch.linspace(0, 9, 91, dtype=torch.float64)
    found = epps_pulley(characteristic_function(torch.zeros(7, 1).double(), frequencies), frequencies, 7)
    assert found.item() == pytest.approx(7 * math.sqrt(2 * math.pi) * (1 - math.sqrt(2) + 1 / math.sqrt(3)), rel=1e-9)


def test_the_quantiles_themselves_have_the_right_shape() -> None:
    quantiles = torch.tensor([NormalDist().inv_cdf(i / 200) for i in range(1, 200)], dtype=torch.float64)
    even, flat = quantiles[None, :, None], torch.linspace(-1, 1, 199, dtype=torch.float64)[None, :, None]
    assert off_shape(5 + 3 * even, torch.ones(1, 1).double()).item() < 0.002
    # A uniform sample of variance 1 is 2 - 2 sqrt(3 / pi) from a normal one, squared.
    assert off_shape(flat, torch.ones(1, 1).double()).item() == pytest.approx(2 - 2 * math.sqrt(3 / math.pi), abs=0.01)


def test_collapse_mutes_the_pull_of_sigreg_and_not_that_of_visreg() -> None:
    """How the regularizers change with the scale c of projections: sigreg's even function like c, visreg's like -2."""
    frequencies = torch.linspace(0, 3, 17, dtype=torch.float64)
    z = torch.randn(1, 32, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = (z - z.mean(dim=1)) / z.std(dim=1, correction=0)
    slices = draw_directions(8, z, torch.Generator().manual_seed(0))

    def pulls(scale: float) -> tuple[float, float]:
        c = torch.tensor(scale, dtype=torch.float64, requires_grad=True)
        statistic = epps_pulley(characteristic_function(c * z @ slices, frequencies), frequencies, 32).mean()
        return tuple(torch.autograd.grad(value, c)[0].item() for value in (statistic, off_scale(c * z)))

    (near, held), (nearer, still_held) = pulls(1e-3), pulls(1e-4)
    assert near / nearer == pytest.approx(10, rel=1e-3)
    assert (held, still_held) == pytest.approx((-2 * (1 - 1e-3), -2 * (1 - 1e-4)), rel=1e-9)


def test_slices_are_unit_directions_that_the_generator_alone_decides() -> None:
    method, batch = build(), random_batch(SIZE)
    first, again, other = (method(batch, torch.Generator().manual_seed(seed)).loss for seed in (1, 1, 2))
    assert first.item() == again.item() != other.item()
    slices = draw_directions(4000, torch.zeros(1, 3), torch.Generator().manual_seed(0))
    torch.testing.assert_close(slices.norm(dim=0), torch.ones(4000))
    torch.testing.assert_close(slices @ slices.T / 4000, torch.eye(3) / 3, rtol=0, atol=0.02)  # no direction preferred
