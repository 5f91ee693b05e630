"""DCL: SimCLR but for the loss."""

import pytest
import torch
from torch import Tensor

from energy_contrast.contrastive.dcl import Dcl

from ..conftest import assert_same_loss, built, random_batch

SIZE = 6


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
    method, batch = built(Dcl, temperature=0.3, **settings), random_batch(SIZE)
    output = method(batch, torch.Generator())
    expected = slow_loss(method.head(method.encoder(batch.views.flatten(0, 1))), sigma)
    assert_same_loss(output.loss, expected, method)
    torch.testing.assert_close(output.metrics["decoupled"], expected.detach(), rtol=1e-10, atol=0)
