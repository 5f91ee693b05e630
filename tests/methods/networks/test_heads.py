"""The projection head against its equation."""

import pytest
import torch
from torch import nn

from energy_contrast.networks.batch_norm import GlobalBatchNorm1d
from energy_contrast.networks.heads import ProjectionHead


@pytest.mark.parametrize(("activation", "slope"), [("relu", 0.0), ("leaky_relu", 0.2)])
def test_two_layers_are_w2_activated_w1_h(activation: str, slope: float) -> None:
    head = ProjectionHead(5, 7, 3, **({} if activation == "relu" else {"activation": activation}))  # relu by default
    h = torch.randn(4, 5)
    (w1, b1, w2, b2) = head.parameters()
    hidden = h @ w1.T + b1
    torch.testing.assert_close(head(h), torch.where(hidden > 0, hidden, slope * hidden) @ w2.T + b2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"activation": "tanh"}, "activation: no such value, got 'tanh'; use one of relu, leaky_relu"),
        ({"num_layers": 0}, r"num_layers: .*, got 0; use 1 or more"),
    ],
)
def test_what_is_no_head_is_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ProjectionHead(5, 7, 3, **settings)


def test_one_layer_is_linear() -> None:
    head = ProjectionHead(5, 7, 3, num_layers=1)
    assert [tuple(p.shape) for p in head.parameters()] == [(3, 5), (3,)]


def test_batch_norm_stands_in_hidden_layers_only() -> None:
    head = ProjectionHead(5, 7, 3, num_layers=3, batch_norm=True)
    kinds = [type(m) for m in head]
    hidden = [nn.Linear, GlobalBatchNorm1d, nn.ReLU]
    assert kinds == [*hidden, *hidden, nn.Linear]
    assert [m.bias is None for m in head if isinstance(m, nn.Linear)] == [True, True, False]


def test_a_normalised_output_has_mean_0_and_variance_1_and_learns_neither_scale_nor_shift() -> None:
    head = ProjectionHead(5, 7, 3, batch_norm=True, output_batch_norm=True)
    output = head(torch.randn(16, 5))
    torch.testing.assert_close(output.mean(dim=0), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(output.var(dim=0, correction=0), torch.ones(3), atol=1e-3, rtol=0)
    assert [p.requires_grad for p in head[-1].parameters()] == [False, False]
    assert head[-2].bias is None
