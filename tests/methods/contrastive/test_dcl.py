"""DCL: SimCLR but for the loss."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from energy_contrast.contrastive.dcl import Dcl, DclConfig
from energy_contrast.contrastive.flatclr import Flatclr, FlatclrConfig
from energy_contrast.method import Method
from energy_contrast.networks import build_encoder

from ..conftest import random_batch

SIZE = 6


def build(method: type[Method] = Dcl, config: type = DclConfig, **settings: object) -> Method:
    torch.manual_seed(0)
    return method(config(temperature=0.3, **settings), build_encoder("small", in_channels=1, width=4)).double()


def slow_loss(projection: Tensor, sigma: float | None) -> Tensor:
    """The loss of each view of each image in turn, averaged; ``sigma`` of the weights, or None for none."""
    z = [row / row.norm() for row in projection]
    similarities = [z[i] @ z[i + SIZE] for i in range(SIZE)]
    total = torch.zeros((), dtype=torch.float64)
    for i in range(2 * SIZE):
        positive, others = similarities[i % SIZE], [k for k in range(2 * SIZE) if k % SIZE != i % SIZE]
        weight: float | Tensor = 1.0
        if sigma is not None:
            constants = [s.detach() for s in similarities]
            weight = 2 - torch.exp(constants[i % SIZE] / sigma) / (sum(torch.exp(s / sigma) for s in constants) / SIZE)
        total = total - weight * positive / 0.3 + torch.log(sum(torch.exp(z[i] @ z[k] / 0.3) for k in others))
    return total / (2 * SIZE)


@pytest.mark.parametrize(("settings", "sigma"), [({}, None), ({"weighting": "von-mises-fisher"}, 0.5)])
def test_loss_and_gradients_are_the_papers(settings: dict[str, str], sigma: float | None) -> None:
    method, batch = build(**settings), random_batch(SIZE)
    output = method(batch, torch.Generator())
    expected = slow_loss(method.head(method.encoder(batch.views.flatten(0, 1))), sigma)
    torch.testing.assert_close(output.loss, expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(output.metrics["decoupled"], expected.detach(), rtol=1e-10, atol=0)
    weights = list(method.parameters())
    found, wanted = (torch.autograd.grad(loss, weights, retain_graph=True) for loss in (output.loss, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-10)


def test_its_gradient_is_flatclrs() -> None:
    gradients = []
    for method in (build(), build(Flatclr, FlatclrConfig)):
        method(random_batch(SIZE), torch.Generator()).loss.backward()
        gradients.append([weight.grad for weight in method.parameters()])
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)
