"""SimSiam against the paper's algorithm, written out with torch's own layers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from energy_contrast.networks import build_encoder
from energy_contrast.predictive.simsiam import Simsiam, SimsiamConfig

from .test_byol import make_batch


def build(**settings: int) -> Simsiam:
    torch.manual_seed(0)
    config = SimsiamConfig(**{"projection_size": 12, "prediction_hidden_size": 5, **settings})
    return Simsiam(config, build_encoder("small", in_channels=1, width=4)).double()


def plain_networks(*, affine: bool) -> tuple[nn.Module, nn.Module]:
    """The paper's f (encoder and projection of three layers) and h, with the released code's layers."""
    encoder = build_encoder("small", in_channels=1, width=4)
    f = nn.Sequential(
        encoder,
        *(nn.Linear(16, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU()),
        *(nn.Linear(12, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU()),
        *(nn.Linear(12, 12, bias=False), nn.BatchNorm1d(12, affine=affine)),
    )
    h = nn.Sequential(nn.Linear(12, 5, bias=False), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 12))
    return f.double(), h.double()


@pytest.mark.parametrize("scaled", [False, True])  # the authors' code, and EBCLR's baseline
def test_four_steps_are_the_papers_algorithm(scaled: bool) -> None:
    method, (f, h) = build(projection_scale=scaled), plain_networks(affine=scaled)
    learning = [weight for weight in method.parameters() if weight.requires_grad]
    for mine, theirs in zip(learning, [*f.parameters(), *h.parameters()], strict=True):
        theirs.data.copy_(mine.data)
    optimizers = [torch.optim.SGD(weights, lr=0.1) for weights in (learning, [*f.parameters(), *h.parameters()])]
    for step in range(4):
        x1, x2 = make_batch(step).views
        z1, z2 = f(x1), f(x2)
        p1, p2 = h(z1), h(z2)
        expected = sum(-F.cosine_similarity(p, z.detach()).mean() / 2 for p, z in ((p1, z2), (p2, z1)))
        output = method(make_batch(step), torch.Generator())
        torch.testing.assert_close(output.loss, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(output.metrics["prediction_similarity"], -expected.detach())
        for optimizer, loss in zip(optimizers, (output.loss, expected), strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.testing.assert_close(learning, [*f.parameters(), *h.parameters()], rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(method.encoder.state_dict(), f[0].state_dict(), rtol=1e-7, atol=1e-9)


def test_head_and_predictor_have_the_shapes_asked_for() -> None:
    method = build(projection_num_layers=2, projection_hidden_size=7)
    shapes = [
        [(m.in_features, m.out_features) for m in network if isinstance(m, nn.Linear)]
        for network in (method.head, method.predictor)
    ]
    assert shapes == [[(16, 7), (7, 12)], [(12, 5), (5, 12)]]
