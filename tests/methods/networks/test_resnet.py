"""The residual network against torchvision's and by counting."""

import os
import subprocess
import sys

import pytest
import torch
import torchvision
from torch import nn
from torchvision.models.resnet import Bottleneck

from energy_contrast.networks import build_encoder
from energy_contrast.networks.drawn import EncoderShape, make_shortcut
from energy_contrast.networks.resnet import BottleneckBlock, ResNet


def resnet18(**changes: object) -> ResNet:
    return ResNet((2, 2, 2, 2), EncoderShape(**{"in_channels": 3, "stem": "imagenet", "width": 64, **changes}))


def randomise_norms(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight.data, module.bias.data, module.running_mean, module.running_var):
                tensor.uniform_(0.5, 1.5)


def test_weights_load_into_torchvisions_resnet18_and_give_its_output() -> None:
    torch.manual_seed(0)
    ours = resnet18()
    randomise_norms(ours)
    theirs = torchvision.models.resnet18()
    report = theirs.load_state_dict(ours.state_dict(), strict=False)
    assert sorted(report.missing_keys) == ["fc.bias", "fc.weight"]
    assert report.unexpected_keys == []
    theirs.fc = nn.Identity()
    images = torch.randn(2, 3, 64, 64)
    for training in (False, True):
        torch.testing.assert_close(ours.train(training)(images), theirs.train(training)(images))
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


@pytest.mark.parametrize("stem", ["imagenet", "cifar"])
def test_weights_of_a_narrow_resnet50_load_into_torchvisions_and_give_its_output(stem: str) -> None:
    torch.manual_seed(0)
    ours = ResNet((3, 4, 6, 3), EncoderShape(in_channels=3, width=2, stem=stem), block=BottleneckBlock)
    randomise_norms(ours)
    theirs = torchvision.models.ResNet(Bottleneck, [3, 4, 6, 3], width_per_group=64)
    narrow(theirs, 32)
    if stem == "cifar":
        theirs.conv1, theirs.maxpool = nn.Conv2d(3, 2, 3, padding=1, bias=False), nn.Identity()
    theirs.fc = nn.Identity()
    theirs.load_state_dict(ours.state_dict())
    images = torch.randn(4, 3, 32, 32)
    for training in (False, True):
        torch.testing.assert_close(ours.train(training)(images), theirs.train(training)(images))
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    assert ours.embedding_size == 64


def narrow(network: nn.Module, factor: int) -> None:
    """Give every convolution and norm of a network fewer channels, but for the images'."""
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Conv2d):
                shape = (
                    (child.in_channels if child.in_channels == 3 else child.in_channels // factor),
                    (child.out_channels // factor),
                )
                parts = {"stride": child.stride, "padding": child.padding, "bias": False}
                setattr(parent, name, nn.Conv2d(*shape, child.kernel_size, **parts))
            elif isinstance(child, nn.BatchNorm2d):
                setattr(parent, name, nn.BatchNorm2d(child.num_features // factor))


def test_resnet50_has_torchvisions_names_and_shapes() -> None:
    with torch.device("meta"):
        ours, theirs = build_encoder("resnet50", in_channels=3, stem="imagenet"), torchvision.models.resnet50()
    shapes = {name: value.shape for name, value in theirs.state_dict().items() if not name.startswith("fc.")}
    assert {name: value.shape for name, value in ours.state_dict().items()} == shapes


def test_parameters_number_as_torchvisions_without_the_classifier() -> None:
    with torch.device("meta"):
        theirs, ours, cifar = torchvision.models.resnet18(), resnet18(), resnet18(stem="cifar")
    expected = sum(p.numel() for p in theirs.parameters()) - 512 * 1000 - 1000
    assert sum(p.numel() for p in ours.parameters()) == expected
    # The CIFAR stem has 3x3 instead of 7x7 taps.
    assert sum(p.numel() for p in cifar.parameters()) == expected - 64 * 3 * (49 - 9)


def test_leaky_relu_has_slope_a_fifth_everywhere() -> None:
    network = resnet18(activation="leaky_relu", width=4)
    assert not any(isinstance(m, nn.ReLU) for m in network.modules())
    slopes = [m.negative_slope for m in network.modules() if isinstance(m, nn.LeakyReLU)]
    assert slopes == [0.2] * 9


@pytest.mark.parametrize(("activation", "gain_squared"), [("relu", 2.0), ("leaky_relu", 2 / 1.04)])
def test_convolutions_start_kaiming_normal_by_fan_out(activation: str, gain_squared: float) -> None:
    torch.manual_seed(0)
    weight = resnet18(activation=activation).get_submodule("layer3.0.conv1").weight
    # 256 output channels x 9 taps; 295k draws put the standard deviation within 0.2 % of its value.
    assert weight.std().item() == pytest.approx((gain_squared / (256 * 9)) ** 0.5, rel=0.01)


@pytest.mark.parametrize("batch_norm", ["global", "none"])
def test_torchs_initialisation_is_what_torch_gives_every_convolution(batch_norm: str) -> None:
    torch.manual_seed(0)
    network = resnet18(batch_norm=batch_norm, stem="cifar", initialisation="torch")
    torch.manual_seed(0)
    first = nn.Conv2d(3, 64, 3, padding=1, bias=batch_norm == "none")
    torch.testing.assert_close(network.conv1.state_dict(), first.state_dict(), rtol=0, atol=0)
    for convolution in (m for m in network.modules() if isinstance(m, nn.Conv2d)):
        bound = convolution.weight[0].numel() ** -0.5  # 1 / sqrt(fan in)
        for numbers in convolution.parameters():
            assert numbers.abs().max() <= bound
        # uniform in +/- bound: the relative error of a variance of n such numbers is sqrt(0.8 / n)
        spread = 5 * (0.8 / convolution.weight.numel()) ** 0.5
        assert convolution.weight.square().mean().item() == pytest.approx(bound**2 / 3, rel=spread)


@pytest.mark.parametrize("initialisation", ["kaiming", "torch"])
def test_weights_drawn_anew_are_those_of_a_new_network(initialisation: str) -> None:
    settings = {"width": 4, "initialisation": initialisation}
    torch.manual_seed(1)
    network = resnet18(**settings)
    randomise_norms(network)
    network(torch.randn(2, 3, 32, 32))
    torch.manual_seed(2)
    network.reset_parameters()
    torch.manual_seed(2)
    fresh = [m for m in resnet18(**settings).modules() if isinstance(m, nn.BatchNorm2d)]
    for norm, new in zip((m for m in network.modules() if isinstance(m, nn.BatchNorm2d)), fresh, strict=True):
        torch.testing.assert_close(norm.state_dict(), new.state_dict(), rtol=0, atol=0)
    weight = network.get_submodule("layer4.1.conv2").weight
    gain_squared = 2.0 if initialisation == "kaiming" else 1 / 3  # over 32 channels x 9 taps, in and out
    assert weight.var().item() == pytest.approx(gain_squared / (32 * 9), rel=0.1)


@pytest.mark.parametrize("channels", [1, 4, 7])
def test_a_narrow_shortcut_is_a_convolution_with_stride(channels: int) -> None:
    ours = make_shortcut(channels, 8, 2, EncoderShape(in_channels=1, width=channels, batch_norm="none")).double()
    theirs = nn.Conv2d(channels, 8, 1, stride=2).double()
    theirs.load_state_dict(ours.state_dict())
    images = torch.randn(3, channels, 9, 6, dtype=torch.float64)
    torch.testing.assert_close(ours(images), theirs(images))


PROGRAM = """
import torch
from energy_contrast.networks import build_encoder
encoder = build_encoder("small", in_channels=1, width=4).to(memory_format=torch.channels_last)
for _ in range(60):
    images = torch.randn(16, 1, 8, 8).contiguous(memory_format=torch.channels_last)
    encoder(images).square().sum().backward()
"""


def test_narrow_networks_write_within_their_memory() -> None:
    checks = {"MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"}  # ends the process where memory was written beyond
    subprocess.run([sys.executable, "-c", PROGRAM], env=os.environ | checks, check=True, timeout=120)
