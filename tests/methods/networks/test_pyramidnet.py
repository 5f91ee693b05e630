"""The PyramidNet against its equation, its channels against the paper's formula, its weights against its count."""

from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from energy_contrast.networks import build_encoder
from energy_contrast.networks.drawn import EncoderShape
from energy_contrast.networks.pyramidnet import PyramidNet, pyramid_channels

from ..conftest import assert_is_its_equation


def pyramid(**changes: object) -> PyramidNet:
    return PyramidNet(14, 7, EncoderShape(in_channels=3, width=4, **changes))


def slow_forward(network: PyramidNet, images: Tensor, slope: float) -> Tensor:
    """Evaluate the network from its weights alone; nothing is written over, and channels are added one by one."""
    state = network.state_dict()

    def conv(name: str, x: Tensor, stride: int = 1) -> Tensor:
        return F.conv2d(x, state[f"{name}.weight"], state.get(f"{name}.bias"), stride=stride, padding=1)

    def norm(name: str, x: Tensor) -> Tensor:
        if f"{name}.weight" not in state:
            return x
        running = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        return F.batch_norm(x, *running, state[f"{name}.weight"], state[f"{name}.bias"])

    def activated(x: Tensor) -> Tensor:
        return torch.where(x > 0, x, slope * x)

    x = norm("bn1", conv("conv1", images))
    for stage in (1, 2, 3):
        for block in (0, 1):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = conv(f"{name}.conv1", norm(f"{name}.bn1", x), stride)
            y = norm(f"{name}.bn3", conv(f"{name}.conv2", activated(norm(f"{name}.bn2", y))))
            if stride == 2:
                x = (x[..., ::2, ::2] + x[..., 1::2, ::2] + x[..., ::2, 1::2] + x[..., 1::2, 1::2]) / 4
            x = torch.stack([y[:, c] + x[:, c] if c < x.shape[1] else y[:, c] for c in range(y.shape[1])], dim=1)
    return activated(norm("bn2", x)).mean(dim=(2, 3))


@pytest.mark.parametrize("batch_norm", ["global", "none"])
@pytest.mark.parametrize(("activation", "slope"), [("relu", 0.0), ("leaky_relu", 0.2)])
def test_it_is_its_equation_and_so_is_its_gradient(batch_norm: str, activation: str, slope: float) -> None:
    torch.manual_seed(0)
    assert_is_its_equation(pyramid(batch_norm=batch_norm, activation=activation), slow_forward, slope)


@pytest.mark.parametrize(("num_blocks", "widening"), [(54, 84), (54, 270), (54, 48), (9, 7), (3, 1)])
def test_channels_are_those_of_the_paper_s_formula(num_blocks: int, widening: int) -> None:
    exact, expected = Fraction(16), [16]
    for _ in range(num_blocks):
        exact += Fraction(widening, num_blocks)
        expected.append(exact.numerator // exact.denominator)
    assert pyramid_channels(num_blocks, widening) == expected
    assert expected[-1] == 16 + widening


def weights_of(depth: int, widening: int) -> int:
    with torch.device("meta"):
        network = build_encoder(f"pyramidnet-{depth}-{widening}", in_channels=3)
    classifier = 10 * (network.embedding_size + 1)  # with ten classes, as the paper counts
    return sum(p.numel() for p in network.parameters()) + classifier


def test_it_has_as_many_weights_as_its_layers_and_as_the_paper_says() -> None:
    """Two 3x3 convolutions a block without biases, and two numbers a channel for each norm."""
    expected, before = 3 * 16 * 9 + 2 * 16, 16
    for k in range(1, 55):
        channels = 16 + 84 * k // 54
        expected += 9 * (before * channels + channels * channels) + 2 * (before + 2 * channels)
        before = channels
    assert weights_of(110, 84) == expected + 2 * 100 + 10 * 101
    in_millions = {widening: weights_of(110, widening) // 100_000 / 10 for widening in (48, 84)}
    assert in_millions == {48: 1.7, 84: 3.8}  # the paper's, which cuts further digits
