"""Residual networks of basic or bottleneck blocks, under torchvision's parameter names.

Shapes: B images, C channels, H x W pixels, w width (channels of the first stage), D embedding size.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from energy_contrast.networks.drawn import (
    DrawnEncoder,
    EncoderShape,
    make_activation,
    make_norm,
    make_shortcut,
    make_stem,
)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut.

    ``y = a(n2(c2(a(n1(c1(x))))) + shortcut(x))`` with convolutions c, norms n and activation a; the shortcut is the
    identity where shapes agree and a normalised 1x1 convolution elsewhere.

    Args:
        in_channels: Channels of the input.
        channels: Channels of the convolutions and of the output.
        stride: Stride of the first convolution and of the shortcut.
        shape: Norm, without which the convolutions have biases, and activation.

    Source: He et al. 2016 (arXiv:1512.03385), figure 2 and section 3.3, option B.
    """

    expansion = 1

    def __init__(self, in_channels: int, channels: int, *, stride: int, shape: EncoderShape) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=shape.bias)
        self.bn1 = make_norm(channels, shape)
        self.relu = make_activation(shape.activation)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=shape.bias)
        self.bn2 = make_norm(channels, shape)
        self.downsample = _shortcut(in_channels, channels, stride, shape)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, channels, H / stride, W / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += shortcut
        activated: Tensor = self.relu(y)
        return activated


class BottleneckBlock(nn.Module):
    """A 3x3 convolution between two of 1x1, beside a shortcut; the last has four times the channels.

    ``y = a(n3(c3(a(n2(c2(a(n1(c1(x)))))))) + shortcut(x))``, the shortcut as in ``BasicBlock``.

    Args:
        in_channels: Channels of the input.
        channels: Channels of the first two convolutions; a quarter of the output's.
        stride: Stride of the 3x3 convolution and of the shortcut.
        shape: Norm, without which the convolutions have biases, and activation.

    Source: He et al. 2016 (arXiv:1512.03385), figure 5.
    Departs from the paper: the stride is that of the 3x3 convolution, as in torchvision, not of the first.
    """

    expansion = 4

    def __init__(self, in_channels: int, channels: int, *, stride: int, shape: EncoderShape) -> None:
        super().__init__()
        out_channels = self.expansion * channels
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=shape.bias)
        self.bn1 = make_norm(channels, shape)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=shape.bias)
        self.bn2 = make_norm(channels, shape)
        self.conv3 = nn.Conv2d(channels, out_channels, 1, bias=shape.bias)
        self.bn3 = make_norm(out_channels, shape)
        self.relu = make_activation(shape.activation)
        self.downsample = _shortcut(in_channels, out_channels, stride, shape)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, 4 channels, H / stride, W / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += shortcut
        activated: Tensor = self.relu(y)
        return activated


class ResNet(DrawnEncoder):
    """A residual network with average pooling.

    Stage s has ``num_blocks[s]`` blocks of ``width * 2^s`` channels (four times as many come out of bottlenecks); every
    stage but the first halves the resolution. With the ImageNet stem, width 64, batch norm and ReLU, ``state_dict``
    equals that of torchvision's networks without ``fc``, name by name: basic blocks (2, 2, 2, 2) that of ``resnet18``,
    bottlenecks (3, 4, 6, 3) that of ``resnet50``.

    Args:
        num_blocks: Blocks of each stage.
        shape: Its width is that of the first stage.
        block: Class of the blocks.

    Attributes:
        embedding_size: D, the channels of the last stage, four times as many with ``quarters``.

    Source: He et al. 2016 (arXiv:1512.03385), table 1; CIFAR stem as in SimCLR (arXiv:2002.05709), appendix B.9.
    """

    def __init__(
        self,
        num_blocks: Sequence[int],
        shape: EncoderShape,
        block: type[BasicBlock] | type[BottleneckBlock] = BasicBlock,
    ) -> None:
        super().__init__(shape)
        self.conv1, self.maxpool = make_stem(shape.width, shape)
        self.bn1 = make_norm(shape.width, shape)
        self.relu = make_activation(shape.activation)
        channels = shape.width
        for stage, count in enumerate(num_blocks):
            inner, before = shape.width * 2**stage, channels
            channels = block.expansion * inner
            sizes = [(before, inner)] + [(channels, inner)] * (count - 1)
            self.add_stage(block, sizes)
        self.finish(channels)

    def stem(self, images: Tensor) -> Tensor:
        """Map images (B, C, H, W) to the activations (B, w, H', W') of the first convolution."""
        activated: Tensor = self.relu(self.bn1(self.conv1(images)))
        return activated

    def trunk(self, activated: Tensor) -> Tensor:
        """Map what ``stem`` returns to embeddings (B, D)."""
        return self.pool(self.through_stages(self.maxpool(activated)))

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, C, H, W) to embeddings (B, D)."""
        return self.trunk(self.stem(images))


def _shortcut(in_channels: int, channels: int, stride: int, shape: EncoderShape) -> nn.Sequential | None:
    """Return what the shortcut of a block passes through; None where shapes agree."""
    if stride == 1 and in_channels == channels:
        return None
    return nn.Sequential(make_shortcut(in_channels, channels, stride, shape), make_norm(channels, shape))
