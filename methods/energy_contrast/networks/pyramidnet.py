"""Pyramidal residual networks, whose channels grow by the same amount in every block.

Shapes: B images, C channels, H x W pixels, D_k channels of block k, D embedding size.
"""

from __future__ import annotations

import re
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from energy_contrast.networks.drawn import DrawnEncoder, EncoderShape, make_activation, make_norm, make_stem

PYRAMIDNET = "pyramidnet"
NUM_STAGES = 3


class PyramidBlock(nn.Module):
    """Two 3x3 convolutions with an activation between them, beside a shortcut without weights.

    ``y = n3(c2(a(n2(c1(n1(x)))))) + [x, 0]`` with convolutions c, norms n and activation a: the shortcut is x, averaged
    over 2x2 pixels if the stride is 2 and padded with channels of zeros.

    Args:
        in_channels: Channels of the input.
        channels: Channels of the convolutions and of the output, no fewer than the input's.
        stride: Stride of the first convolution, 1 or 2.
        shape: Norm, without which the convolutions have biases, and activation.

    Source: Han, Kim and Kim 2017 (arXiv:1610.02915), the residual unit without its first activation and with a norm
    after its last convolution, and the zero-padded shortcut; averages where the stride is 2: their released code.
    """

    def __init__(self, in_channels: int, channels: int, *, stride: int, shape: EncoderShape) -> None:
        super().__init__()
        self.bn1 = make_norm(in_channels, shape)
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=shape.bias)
        self.bn2 = make_norm(channels, shape)
        self.relu = make_activation(shape.activation)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=shape.bias)
        self.bn3 = make_norm(channels, shape)
        # ceil_mode: with an odd side, the last average takes what is left, so that shapes match the convolution's
        self.pool: nn.Module = nn.AvgPool2d(2, ceil_mode=True) if stride == 2 else nn.Identity()
        self.num_zeros = channels - in_channels

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in_channels, H, W) to (B, channels, H / stride, W / stride)."""
        y: Tensor = self.bn3(self.conv2(self.relu(self.bn2(self.conv1(self.bn1(x))))))
        return y + F.pad(self.pool(x), (0, 0, 0, 0, 0, self.num_zeros))


class PyramidNet(DrawnEncoder):
    """A pyramidal residual network of basic blocks with additive widening and average pooling.

    A stem of ``width`` channels and its norm, three stages of n blocks with strides 1, 2 and 2, a last norm and
    activation. The channels of block k of N = 3 n are ``pyramid_channels``, up to ``width + widening``. The depth is
    ``6 n + 2``.

    Args:
        depth: Layers with weights, counting the classifier that would follow: 6 n + 2, 110 in the paper.
        widening: alpha, channels that are added from the stem to the last block.
        shape: Its width is that of the stem, 16 in the paper.

    Attributes:
        embedding_size: D, ``width + widening``, four times as many with ``quarters``.

    Raises:
        ValueError: If the depth is not 6 n + 2 or the widening is below 1.

    Source: Han, Kim and Kim 2017 (arXiv:1610.02915), table 1 and eq. 2; depth 110 and alpha 84 make 3.8 million
    weights there.
    Departs from the paper: the ImageNet stem is ours in a network of three stages; there, networks for ImageNet have
    four, of bottlenecks. Neither the multiplicative widening of eq. 3 nor the bottleneck is here.
    """

    def __init__(
        self,
        depth: int,
        widening: int,
        shape: EncoderShape,
    ) -> None:
        _check(depth, widening)
        super().__init__(shape)
        self.conv1, self.maxpool = make_stem(shape.width, shape)
        self.bn1 = make_norm(shape.width, shape)
        num_blocks = (depth - 2) // 6
        widths = pyramid_channels(NUM_STAGES * num_blocks, widening, start=shape.width)
        sizes = list(pairwise(widths))
        for first in range(0, len(sizes), num_blocks):
            own = sizes[first : first + num_blocks]
            self.add_stage(PyramidBlock, own)
        self.bn2 = make_norm(widths[-1], shape)
        self.relu = make_activation(shape.activation)
        self.finish(widths[-1])

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, C, H, W) to embeddings (B, D)."""
        x = self.through_stages(self.maxpool(self.bn1(self.conv1(images))))
        return self.pool(self.relu(self.bn2(x)))


def pyramid_channels(num_blocks: int, widening: int, *, start: int = 16) -> list[int]:
    """Return the channels before the first block and after each: ``D_k = floor(D_0 + alpha k / N)``.

    Args:
        num_blocks: N.
        widening: alpha.
        start: D_0.

    Returns:
        N + 1 numbers, from ``start`` to ``start + widening``.

    >>> pyramid_channels(3, 10)
    [16, 19, 22, 26]

    Source: Han, Kim and Kim 2017 (arXiv:1610.02915), eq. 2.
    Departs from the paper: as printed, D_k is the floor of D_{k-1} + alpha / N, which would drop the fraction of every
    block (54 channels would be added instead of 84); here fractions accumulate, as table 1 requires. The released code
    rounds to the nearest integer instead.
    """
    return [start + widening * k // num_blocks for k in range(num_blocks + 1)]


def pyramid_size(name: str) -> tuple[int, int]:
    """Return the depth and the widening in the name of an encoder, ``pyramidnet-DEPTH-WIDENING``.

    Args:
        name: With a depth of 6 n + 2 and a widening of at least 1.

    Raises:
        ValueError: If there is no such network.

    >>> pyramid_size("pyramidnet-110-84")
    (110, 84)

    Source: the names are those of Han, Kim and Kim 2017 (arXiv:1610.02915): depth and alpha.
    """
    found = re.fullmatch(f"{PYRAMIDNET}-([0-9]{{1,4}})-([0-9]{{1,4}})", name)
    if found is None:
        raise ValueError(f"a PyramidNet is named by depth and widening, got {name[:80]!r}; use {PYRAMIDNET}-110-84")
    depth, widening = map(int, found.groups())
    _check(depth, widening)
    return depth, widening


def _check(depth: int, widening: int) -> None:
    if depth < 8 or depth % 6 != 2:
        nearest = max(8, 6 * round((depth - 2) / 6) + 2)
        raise ValueError(f"a PyramidNet has 6 n + 2 layers, got {depth}; use {PYRAMIDNET}-{nearest}-{max(widening, 1)}")
    if widening < 1:
        raise ValueError(f"a PyramidNet grows by one channel at least, got {widening}; use {PYRAMIDNET}-{depth}-84")
