"""Residual networks of basic or bottleneck blocks, under torchvision's parameter names.

Shapes: B images, C channels, H x W pixels, w width (channels of the first stage), D embedding size.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from energy_contrast.networks.drawn import DrawnEncoder, make_activation, make_norm, make_stem, pooled_size


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut.

    ``y = a(n2(c2(a(n1(c1(x))))) + shortcut(x))`` with convolutions c, norms n and activation a; the shortcut is the
    identity where shapes agree and a normalised 1x1 convolution elsewhere.

    Args:
        in_channels: Channels of the input.
        channels: Channels of the convolutions and of the output.
        stride: Stride of the first convolution and of the shortcut.
        batch_norm: ``global`` or ``none``; without norms the convolutions have biases.
        activation: ``relu`` or ``leaky_relu`` (slope 0.2).

    Source: He et al. 2016 (arXiv:1512.03385), figure 2 and section 3.3, option B.
    """

    expansion = 1

    def __init__(self, in_channels: int, channels: int, *, stride: int, batch_norm: str, activation: str) -> None:
        super().__init__()
        bias = batch_norm == "none"
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=bias)
        self.bn1 = make_norm(channels, batch_norm)
        self.relu = make_activation(activation)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=bias)
        self.bn2 = make_norm(channels, batch_norm)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != channels:
            shortcut = nn.Conv2d(in_channels, channels, 1, stride=stride, bias=bias)
            self.downsample = nn.Sequential(shortcut, make_norm(channels, batch_norm))

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
        batch_norm: ``global`` or ``none``; without norms the convolutions have biases.
        activation: ``relu`` or ``leaky_relu`` (slope 0.2).

    Source: He et al. 2016 (arXiv:1512.03385), figure 5.
    Departs from the paper: the stride is that of the 3x3 convolution, as in torchvision, not of the first.
    """

    expansion = 4

    def __init__(self, in_channels: int, channels: int, *, stride: int, batch_norm: str, activation: str) -> None:
        super().__init__()
        bias, out_channels = batch_norm == "none", self.expansion * channels
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=bias)
        self.bn1 = make_norm(channels, batch_norm)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=bias)
        self.bn2 = make_norm(channels, batch_norm)
        self.conv3 = nn.Conv2d(channels, out_channels, 1, bias=bias)
        self.bn3 = make_norm(out_channels, batch_norm)
        self.relu = make_activation(activation)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != out_channels:
            shortcut = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=bias)
            self.downsample = nn.Sequential(shortcut, make_norm(out_channels, batch_norm))

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
        in_channels: Channels of the images.
        stem: ``cifar``, ``strided`` or ``imagenet``, see ``make_stem``.
        width: Channels of the first stage.
        batch_norm: ``global`` (batch norm) or ``none`` (no norm, convolutions get biases).
        activation: ``relu`` or ``leaky_relu`` (slope 0.2).
        initialisation: ``kaiming`` or ``torch``, see ``DrawnEncoder``.
        pooling: ``mean`` or ``quarters``, see ``DrawnEncoder.pool``.
        block: Class of the blocks.

    Attributes:
        embedding_size: D, the channels of the last stage, four times as many with ``quarters``.

    Source: He et al. 2016 (arXiv:1512.03385), table 1; CIFAR stem as in SimCLR (arXiv:2002.05709), appendix B.9.
    """

    def __init__(
        self,
        num_blocks: Sequence[int],
        *,
        in_channels: int,
        stem: str,
        width: int,
        batch_norm: str,
        activation: str,
        initialisation: str = "kaiming",
        pooling: str = "mean",
        block: type[BasicBlock] | type[BottleneckBlock] = BasicBlock,
    ) -> None:
        super().__init__(activation, initialisation, pooling)
        self.conv1, self.maxpool = make_stem(in_channels, width, stem, bias=batch_norm == "none")
        self.bn1 = make_norm(width, batch_norm)
        self.relu = make_activation(activation)
        channels = width
        for stage, count in enumerate(num_blocks):
            inner, before = width * 2**stage, channels
            channels = block.expansion * inner
            sizes = [(before, inner)] + [(channels, inner)] * (count - 1)
            self.add_stage(block, sizes, batch_norm=batch_norm, activation=activation)
        self.embedding_size = pooled_size(channels, pooling)
        self.initialise()

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
