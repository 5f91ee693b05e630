"""Wide residual networks, as used in energy-based models.

Shapes: B images, C channels, H x W pixels, D embedding size.
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

from torch import Tensor, nn

from energy_contrast.networks.drawn import (
    DrawnEncoder,
    EncoderShape,
    make_activation,
    make_norm,
    make_shortcut,
    make_stem,
)

STEM_CHANNELS = 16


class WideBlock(nn.Module):
    """Two 3x3 convolutions, each after its norm and activation, beside a shortcut.

    ``y = c2(a(n2(c1(a(n1(x)))))) + shortcut(x)`` with convolutions c, norms n and activation a; the shortcut is the
    identity where shapes agree and a 1x1 convolution elsewhere.

    Args:
        in_channels: Channels of the input.
        channels: Channels of the output.
        stride: Stride of the second convolution and of the shortcut.
        shape: Norm, without which the convolutions have biases, and activation.

    Source: Zagoruyko and Komodakis 2016 (arXiv:1605.07146), figure 1; stride and shortcut as in JEM's released code.
    Departs from the paper: the second convolution has the stride, and the shortcut starts from x; there, the first has
    it, and a convolution on the shortcut starts from a(n1(x)).
    """

    def __init__(self, in_channels: int, channels: int, *, stride: int, shape: EncoderShape) -> None:
        super().__init__()
        self.bn1 = make_norm(in_channels, shape)
        self.conv1 = nn.Conv2d(in_channels, channels, 3, padding=1, bias=shape.bias)
        self.bn2 = make_norm(channels, shape)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=shape.bias)
        # without a norm its input is x itself, which the shortcut still needs
        self.relu1 = make_activation(shape.activation, inplace=not shape.bias)
        self.relu2 = make_activation(shape.activation)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != channels:
            self.shortcut = make_shortcut(in_channels, channels, stride, shape)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, channels, H / stride, W / stride)."""
        y = self.conv1(self.relu1(self.bn1(x)))
        y = self.conv2(self.relu2(self.bn2(y)))
        y += self.shortcut(x)
        return cast(Tensor, y)


class WideResNet(DrawnEncoder):
    """A wide residual network with average pooling: WRN-28-10 with four blocks a stage and width 160.

    A stem of 16 channels, then three stages of ``num_blocks`` blocks with w, 2w and 4w channels and strides 1, 2 and 2,
    a last norm and activation. The depth is ``6 num_blocks + 4``.

    Args:
        num_blocks: Blocks of each stage.
        shape: Its width is w, of the first stage; 160 is ten times the stem's.

    Attributes:
        embedding_size: D, 4w, four times as many with ``quarters``.

    Source: Zagoruyko and Komodakis 2016 (arXiv:1605.07146), table 1; JEM (arXiv:1912.03263), section 5 and its code: no
    norm, leaky ReLU, torch's initialisation.
    Departs from the papers: no dropout; the ImageNet stem is ours.
    """

    def __init__(
        self,
        num_blocks: int,
        shape: EncoderShape,
    ) -> None:
        super().__init__(shape)
        self.conv1, self.maxpool = make_stem(STEM_CHANNELS, shape)
        for before, channels in pairwise((STEM_CHANNELS, shape.width, 2 * shape.width, 4 * shape.width)):
            sizes = [(before, channels)] + [(channels, channels)] * (num_blocks - 1)
            self.add_stage(WideBlock, sizes)
        self.bn1 = make_norm(4 * shape.width, shape)
        self.relu = make_activation(shape.activation)
        self.finish(4 * shape.width)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, C, H, W) to embeddings (B, D)."""
        x = self.through_stages(self.maxpool(self.conv1(images)))
        return self.pool(self.relu(self.bn1(x)))
