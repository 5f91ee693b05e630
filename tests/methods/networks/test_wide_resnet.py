"""The wide residual network against its equation, by counting, and where an activation could write over a shortcut."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from energy_contrast.networks import build_encoder
from energy_contrast.networks.drawn import EncoderShape
from energy_contrast.networks.wide_resnet import WideResNet

from ..conftest import assert_is_its_equation


def wrn(**changes: object) -> WideResNet:
    return WideResNet(2, EncoderShape(in_channels=3, width=4, **changes))


def slow_forward(network: WideResNet, images: Tensor, slope: float) -> Tensor:
    """Evaluate the network from its weights alone; nothing is written over."""
    state = network.state_dict()

    def conv(name: str, x: Tensor, stride: int = 1, padding: int = 1) -> Tensor:
        return F.conv2d(x, state[f"{name}.weight"], state.get(f"{name}.bias"), stride=stride, padding=padding)

    def activated(name: str, x: Tensor) -> Tensor:
        if f"{name}.weight" in state:
            running = state[f"{name}.running_mean"], state[f"{name}.running_var"]
            x = F.batch_norm(x, *running, state[f"{name}.weight"], state[f"{name}.bias"])
        return torch.where(x > 0, x, slope * x)

    x = conv("conv1", images)
    for stage in (1, 2, 3):
        for block in (0, 1):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = conv(f"{name}.conv1", activated(f"{name}.bn1", x))
            y = conv(f"{name}.conv2", activated(f"{name}.bn2", y), stride)
            x = y + (conv(f"{name}.shortcut", x, stride, 0) if f"{name}.shortcut.weight" in state else x)
    return activated("bn1", x).mean(dim=(2, 3))


@pytest.mark.parametrize("batch_norm", ["global", "none"])
@pytest.mark.parametrize(("activation", "slope"), [("relu", 0.0), ("leaky_relu", 0.2)])
def test_it_is_its_equation(batch_norm: str, activation: str, slope: float) -> None:
    torch.manual_seed(0)
    assert_is_its_equation(wrn(batch_norm=batch_norm, activation=activation), slow_forward, slope)


def test_at_its_own_width_it_has_the_weights_of_wrn_28_10() -> None:
    """3x3 convolutions of four blocks a stage, three shortcuts, and two numbers a channel for each norm."""
    with torch.device("meta"):
        network = build_encoder("wrn28", in_channels=3)
    convolutions = 3 * 16 * 9
    norms = 2 * 640
    for before, channels in ((16, 160), (160, 320), (320, 640)):
        convolutions += before * channels * 9 + 7 * channels * channels * 9 + before * channels
        norms += 2 * (before + 7 * channels)
    assert sum(p.numel() for p in network.parameters()) == convolutions + norms
    assert round((convolutions + norms + 6410) / 1e6, 1) == 36.5  # with ten classes, as the paper counts
    layers = [m for m in network.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(layers) == 25  # and the classifier, and two of the three shortcuts' places, make 28 in the paper's count
    assert network.embedding_size == 640
