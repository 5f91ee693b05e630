"""SimSiam against the paper's algorithm, written out with torch's own layers."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from energy_contrast.losses import nt_xent
from energy_contrast.method import Batch
from energy_contrast.networks import build_encoder
from energy_contrast.predictive import measure_pairs, predict_across
from energy_contrast.simsiam import Simsiam, SimsiamConfig

SIZE = 8


def build(**settings: int) -> Simsiam:
    torch.manual_seed(0)
    config = SimsiamConfig(**{"projection_size": 12, "prediction_hidden_size": 5, **settings})
    return Simsiam(config, build_encoder("small", in_channels=1, width=4)).double()


def make_batch(step: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(step)
    views = torch.randn(2, SIZE, 1, 8, 8, generator=generator, dtype=torch.float64)
    return Batch(views, torch.full((SIZE,), -1), torch.arange(SIZE), views.new_empty(0, 1, 8, 8))


def plain_networks() -> tuple[nn.Module, nn.Module]:
    """The paper's f (encoder and projection of three layers) and h, with the released code's layers."""
    encoder = build_encoder("small", in_channels=1, width=4)
    f = nn.Sequential(
        encoder,
        *(nn.Linear(16, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU()),
        *(nn.Linear(12, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU()),
        *(nn.Linear(12, 12, bias=False), nn.BatchNorm1d(12, affine=False)),
    )
    h = nn.Sequential(nn.Linear(12, 5, bias=False), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 12))
    return f.double(), h.double()


def test_four_steps_are_the_papers_algorithm() -> None:
    method, (f, h) = build(), plain_networks()
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


def test_targets_are_held_still() -> None:
    prediction, target = torch.randn(2, 2, SIZE, 5, dtype=torch.float64).requires_grad_()
    predict_across(prediction, target).backward()
    views = torch.randn(2, 2, SIZE, 5, dtype=torch.float64)
    one, other = (tensor.clone().requires_grad_() for tensor in views)
    predict_across(one, other).backward()
    assert other.grad is None
    assert (one.grad.abs().sum(dim=2) > 0).all()


def test_a_collapse_shows_in_what_is_read() -> None:
    same = measure_pairs(torch.ones(2, SIZE, 5), thoroughly=True)
    assert same["info_nce"].item() == pytest.approx(math.log(2 * SIZE - 1))
    assert same["embedding_spread"].item() == pytest.approx(0, abs=1e-6)
    assert same["log_k_saturation"].item() == pytest.approx(0, abs=1e-6)


def test_info_nce_is_simclrs_of_the_projections_and_costly_metrics_come_only_while_diagnosing() -> None:
    method, batch = build(), make_batch()
    z = [method.head(method.encoder(views)) for views in batch.views]
    metrics = method(batch, torch.Generator()).metrics
    torch.testing.assert_close(metrics["info_nce"], nt_xent(*z, temperature=0.2).detach())
    assert "effective_rank" in metrics
    method.diagnosing = False
    assert set(method(batch, torch.Generator()).metrics) == {"info_nce", "prediction_similarity"}


def test_head_and_predictor_have_the_shapes_asked_for() -> None:
    method = build(projection_num_layers=2, projection_hidden_size=7)
    shapes = [
        [(m.in_features, m.out_features) for m in network if isinstance(m, nn.Linear)]
        for network in (method.head, method.predictor)
    ]
    assert shapes == [[(16, 7), (7, 12)], [(12, 5), (5, 12)]]
