"""Residual networks with basic blocks, under torchvision's parameter names.

Shapes: B images, C channels, H x W pixels, w width (channels of the first stage), D embedding size.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from energy_contrast.networks.activation import LEAKY_SLOPE, make_activation
from energy_contrast.networks.batch_norm import GlobalBatchNorm2d


def _make_norm(channels: int, batch_norm: str) -> nn.Module:
    return GlobalBatchNorm2d(channels) if batch_norm == "global" else nn.Identity()


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut.

    ``y = a(n2(c2(a(n1(c1(x))))) + shortcut(x))`` with convolutions c, norms n and activation a; the shortcut is the
    identity where shapes agree and a normalised 1x1 convolution elsewhere.

    Args:
        in_channels: Channels of the input.
        channels: Channels of the output.
        stride: Stride of the first convolution and of the shortcut.
        batch_norm: ``global`` or ``none``; without norms the convolutions have biases.
        activation: ``relu`` or ``leaky_relu`` (slope 0.2).

    Source: He et al. 2016 (arXiv:1512.03385), figure 2 and section 3.3, option B.
    """

    def __init__(self, in_channels: int, channels: int, *, stride: int, batch_norm: str, activation: str) -> None:
        super().__init__()
        bias = batch_norm == "none"
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=bias)
        self.bn1 = _make_norm(channels, batch_norm)
        self.relu = make_activation(activation)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=bias)
        self.bn2 = _make_norm(channels, batch_norm)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != channels:
            shortcut = nn.Conv2d(in_channels, channels, 1, stride=stride, bias=bias)
            self.downsample = nn.Sequential(shortcut, _make_norm(channels, batch_norm))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, channels, H / stride, W / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += shortcut
        activated: Tensor = self.relu(y)
        return activated


class ResNet(nn.Module):
    """A residual network of basic blocks that ends in the average over pixels.

    Stage s has ``num_blocks[s]`` blocks of ``width * 2^s`` channels; every stage but the first halves the resolution.
    With the ImageNet stem, width 64, batch norm, ReLU and blocks (2, 2, 2, 2), ``state_dict`` equals that of
    ``torchvision.models.resnet18`` without ``fc``, name by name.

    With ``initialisation`` kaiming, convolutions start as torchvision's do (Kaiming normal, fan-out, with the gain of
    the activation) and their biases from zero; with torch, as all of torch's do: weights and biases uniform in
    ``+/- 1 / sqrt(fan_in)``, as in the code released with EBCLR.

    Args:
        num_blocks: Blocks of each stage.
        in_channels: Channels of the images.
        stem: ``cifar`` (3x3, stride 1, no pooling) or ``imagenet`` (7x7, stride 2, then max-pooling with stride 2).
        width: Channels of the first stage.
        batch_norm: ``global`` (batch norm) or ``none`` (no norm, convolutions get biases).
        activation: ``relu`` or ``leaky_relu`` (slope 0.2).
        initialisation: ``kaiming`` or ``torch``.

    Attributes:
        embedding_size: D, the channels of the last stage.

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
    ) -> None:
        super().__init__()
        bias = batch_norm == "none"
        if stem == "cifar":
            self.conv1 = nn.Conv2d(in_channels, width, 3, padding=1, bias=bias)
            self.maxpool: nn.Module = nn.Identity()
        else:
            self.conv1 = nn.Conv2d(in_channels, width, 7, stride=2, padding=3, bias=bias)
            self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.bn1 = _make_norm(width, batch_norm)
        self.relu = make_activation(activation)
        self.stage_names = [f"layer{stage + 1}" for stage in range(len(num_blocks))]
        channels = width
        for stage, name in enumerate(self.stage_names):
            blocks: list[nn.Module] = []
            for block in range(num_blocks[stage]):
                stride = 2 if stage > 0 and block == 0 else 1
                out_channels = width * 2**stage
                blocks.append(
                    BasicBlock(channels, out_channels, stride=stride, batch_norm=batch_norm, activation=activation)
                )
                channels = out_channels
            self.add_module(name, nn.Sequential(*blocks))
        self.embedding_size = channels
        self._activation, self._initialisation = activation, initialisation
        self._initialise()

    def reset_parameters(self) -> None:
        """Draw all weights anew from torch's global generator."""
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, GlobalBatchNorm2d)):
                module.reset_parameters()
        self._initialise()

    def _initialise(self) -> None:
        """Give convolutions that have torch's initial weights those of ``initialisation``."""
        if self._initialisation == "torch":
            return
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(
                    module.weight,
                    a=LEAKY_SLOPE,
                    mode="fan_out",
                    nonlinearity=self._activation,  # type: ignore[arg-type]
                )
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def stem(self, images: Tensor) -> Tensor:
        """Map images (B, C, H, W) to the activations (B, w, H', W') of the first convolution."""
        activated: Tensor = self.relu(self.bn1(self.conv1(images)))
        return activated

    def trunk(self, activated: Tensor) -> Tensor:
        """Map what ``stem`` returns to embeddings (B, D)."""
        x = self.maxpool(activated)
        for name in self.stage_names:
            x = self.get_submodule(name)(x)
        embedding: Tensor = x.mean(dim=(2, 3))
        return embedding

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, C, H, W) to embeddings (B, D)."""
        return self.trunk(self.stem(images))
