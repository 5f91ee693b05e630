"""What all our encoders share: weights that can be drawn, and drawn anew."""

from __future__ import annotations

from torch import nn

from energy_contrast.networks.activation import LEAKY_SLOPE
from energy_contrast.networks.batch_norm import GlobalBatchNorm2d


class DrawnEncoder(nn.Module):
    """An encoder of convolutions and batch norms whose first weights are chosen by a word.

    With ``initialisation`` kaiming, convolutions start as torchvision's do (Kaiming normal, fan-out, with the gain of
    the activation) and their biases from zero; with torch, as all of torch's do: weights and biases uniform in
    ``+/- 1 / sqrt(fan_in)``, as in the code released with EBCLR and with JEM.

    Args:
        activation: ``relu`` or ``leaky_relu`` (slope 0.2).
        initialisation: ``kaiming`` or ``torch``.

    Attributes:
        embedding_size: D, the channels of the last stage.
    """

    embedding_size: int

    def __init__(self, activation: str, initialisation: str) -> None:
        super().__init__()
        self._activation, self._initialisation = activation, initialisation

    def reset_parameters(self) -> None:
        """Draw all weights anew from torch's global generator."""
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, GlobalBatchNorm2d)):
                module.reset_parameters()
        self.initialise()

    def initialise(self) -> None:
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


def make_norm(channels: int, batch_norm: str) -> nn.Module:
    """Return the norm of maps (B, channels, H, W): batch norm for ``global``, nothing for ``none``.

    >>> make_norm(3, "none")
    Identity()
    """
    return GlobalBatchNorm2d(channels) if batch_norm == "global" else nn.Identity()


def make_stem(in_channels: int, channels: int, stem: str, *, bias: bool) -> tuple[nn.Conv2d, nn.Module]:
    """Return the first convolution and the pooling after it.

    Args:
        in_channels: Channels of the images.
        channels: Channels of the convolution.
        stem: ``cifar`` (3x3, stride 1, no pooling) or ``imagenet`` (7x7, stride 2, then max-pooling with stride 2).
        bias: Whether the convolution has one.

    >>> make_stem(3, 8, "cifar", bias=False)[1]
    Identity()

    Source: He et al. 2016 (arXiv:1512.03385), table 1; CIFAR stem as in SimCLR (arXiv:2002.05709), appendix B.9.
    """
    if stem == "cifar":
        return nn.Conv2d(in_channels, channels, 3, padding=1, bias=bias), nn.Identity()
    convolution = nn.Conv2d(in_channels, channels, 7, stride=2, padding=3, bias=bias)
    return convolution, nn.MaxPool2d(3, stride=2, padding=1)
