"""DHEL and its kernel form against loops of their equations."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from energy_contrast.contrastive.dhel import Dhel
from energy_contrast.losses import hyperspherical_energy, kernel_contrastive

from ..conftest import assert_same_loss, built, random_batch

SIZE = 6


def slow_energy(u: list[Tensor], v: list[Tensor]) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for i in range(SIZE):
        total = total - u[i] @ v[i] / 0.3
        for view in (u, v):
            total = total + torch.log(sum(torch.exp(view[i] @ view[j] / 0.3) for j in range(SIZE) if j != i))
    return total / SIZE


def slow_kernel(u: list[Tensor], v: list[Tensor]) -> Tensor:
    """KCL with distances taken from the vectors, not from their similarities."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-1.5 * ((a - b) ** 2).sum())

    near = sum(kernel(u[i], v[i]) for i in range(SIZE)) / SIZE
    pairs = [(i, j) for i in range(SIZE) for j in range(SIZE) if i != j]
    apart = [sum(kernel(view[i], view[j]) for i, j in pairs) / len(pairs) for view in (u, v)]
    return -2 * near + 7.0 * (apart[0] + apart[1])


KERNEL = {"objective": "kernel", "kernel_sharpness": 1.5, "kernel_repulsion": 7.0}


@pytest.mark.parametrize(("settings", "slow"), [({}, slow_energy), (KERNEL, slow_kernel)])
def test_loss_and_gradients_are_the_papers(
    settings: dict[str, object], slow: Callable[[list[Tensor], list[Tensor]], Tensor]
) -> None:
    method, batch = built(Dhel, temperature=0.3, **settings), random_batch(SIZE)
    output = method(batch, torch.Generator())
    z = [row / row.norm() for row in method.head(method.encoder(batch.views.flatten(0, 1)))]
    expected = slow(z[:SIZE], z[SIZE:])
    assert_same_loss(output.loss, expected, method)
    torch.testing.assert_close(output.metrics["energy"], expected.detach(), rtol=1e-10, atol=0)


def test_one_image_more_leaves_the_expected_kernel_loss_where_it_is() -> None:
    """Over all batches of a population the mean of the kernel form is the same at every size; that of DHEL grows."""
    generator = torch.Generator().manual_seed(3)
    population = torch.nn.functional.normalize(torch.randn(2, 6, 5, generator=generator, dtype=torch.float64), dim=2)

    def means(size: int) -> tuple[float, float]:
        batches = torch.combinations(torch.arange(6), size)
        kernel, energy = [], []
        for rows in batches:
            u, v = population[:, rows]
            others = ~torch.eye(size, dtype=torch.bool)
            within = torch.stack([(u @ u.T)[others].view(size, -1), (v @ v.T)[others].view(size, -1)])
            kernel.append(kernel_contrastive((u * v).sum(1), within, sharpness=2.0, repulsion=16.0))
            energy.append(hyperspherical_energy((u * v).sum(1), within, temperature=0.3))
        return torch.stack(kernel).mean().item(), torch.stack(energy).mean().item()

    kernel, energy = zip(*map(means, (2, 3, 4, 6)), strict=True)
    assert max(kernel) - min(kernel) < 1e-12
    assert energy[0] < energy[1] < energy[2] < energy[3]


@pytest.mark.parametrize(
    "within", [torch.zeros(2, 3, 2), torch.zeros(1, 4, 2), torch.zeros(2, 4, 0), torch.zeros(4, 2)]
)
def test_shapes_that_do_not_fit_are_one_sentence(within: Tensor) -> None:
    with pytest.raises(ValueError, match=r"similarities: positive and those within views do not fit, got \(4,\)"):
        hyperspherical_energy(torch.zeros(4), within, temperature=0.5)
    with pytest.raises(ValueError, match="do not fit"):
        kernel_contrastive(torch.zeros(4), within, sharpness=2.0, repulsion=1.0)
