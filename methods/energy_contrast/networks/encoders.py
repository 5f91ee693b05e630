"""Encoders by name."""

from __future__ import annotations

from torch import nn

from energy_contrast.networks.drawn import ACTIVATIONS, EncoderShape
from energy_contrast.networks.pyramidnet import PYRAMIDNET, PyramidNet, pyramid_size
from energy_contrast.networks.resnet import BottleneckBlock, ResNet
from energy_contrast.networks.wide_resnet import WideResNet
from energy_contrast.settings import require_word

DEFAULT_WIDTHS = {"small": 16, "resnet18": 64, "resnet50": 64, "wrn28": 160, "pyramidnet-110-84": 16}
STEMS = ("cifar", "strided", "imagenet")
BATCH_NORMS = ("global", "none")
INITIALISATIONS = ("kaiming", "torch")
POOLINGS = ("mean", "quarters")


def build_encoder(
    name: str,
    *,
    in_channels: int,
    stem: str = "cifar",
    width: int = 0,
    batch_norm: str = "global",
    activation: str = "relu",
    initialisation: str = "kaiming",
    pooling: str = "mean",
) -> nn.Module:
    """Return a freshly initialised encoder: images (B, C, H, W) to embeddings (B, D).

    Args:
        name: ``small`` (8x8 to 32x32 pixels), ``resnet18``, ``resnet50``, ``wrn28`` (WRN-28-10 at its width) or
            ``pyramidnet-DEPTH-WIDENING``, such as ``pyramidnet-110-84``.
        in_channels: C, channels of the images.
        stem: ``cifar`` (3x3, stride 1), ``strided`` (3x3, stride 2) or ``imagenet`` (7x7, stride 2, max-pooling), which
            ``small`` does not have.
        width: Channels of the first stage, or of a PyramidNet's stem; 0 means 16 for ``small`` and PyramidNets, 160 for
            ``wrn28`` and 64 for the others.
        batch_norm: ``global`` (batch norm) or ``none`` (no norm, convolutions get biases).
        activation: ``relu`` or ``leaky_relu`` (slope 0.2).
        initialisation: Initial weights of convolutions: ``kaiming`` (torchvision's for residual networks) or ``torch``
            (torch's default).
        pooling: ``mean`` averages over all pixels, ``quarters`` over each quarter: four times the features.

    Returns:
        The network; its ``embedding_size`` is D: 4 widths for ``small`` and ``wrn28``, 8 for ``resnet18``, 32 for
        ``resnet50``; the width and the widening for PyramidNets; four times that with ``quarters``.

    Raises:
        ValueError: If a name is unknown, a number is out of range, or ``small`` is given the ImageNet stem.

    >>> build_encoder("small", in_channels=1).embedding_size
    64

    Source: ``small`` is the CIFAR network of He et al. 2016 (arXiv:1512.03385), section 4.2, with n = 1: three stages
    of one basic block. Departs from the paper: changes of shape use a 1x1 convolution (option B) instead of zero
    padding (option A), so that all encoders share one block. The others: their classes.
    """
    pyramid = _pyramid_size(name)
    default_width = DEFAULT_WIDTHS["pyramidnet-110-84" if pyramid else name]
    require_word("encoder.stem", stem, STEMS)
    require_word("encoder.batch_norm", batch_norm, BATCH_NORMS)
    require_word("encoder.activation", activation, ACTIVATIONS)
    require_word("encoder.initialisation", initialisation, INITIALISATIONS)
    require_word("encoder.pooling", pooling, POOLINGS)
    if in_channels < 1:
        raise ValueError(f"in_channels: images need a channel, got {in_channels}; use 1 or more")
    if width < 0:
        raise ValueError(f"encoder.width: must not be negative, got {width}; 0 means {default_width}")
    width = width or default_width
    if name == "small" and stem == "imagenet":
        raise ValueError(f"encoder.stem: small has no such stem, got {stem!r}; use 'cifar' or 'strided'")
    shape = EncoderShape(in_channels, width, stem, batch_norm, activation, initialisation, pooling)
    if pyramid:
        return PyramidNet(*pyramid, shape)
    if name == "small":
        return ResNet((1, 1, 1), shape)
    if name == "wrn28":
        return WideResNet(4, shape)
    if name == "resnet50":
        return ResNet((3, 4, 6, 3), shape, block=BottleneckBlock)
    return ResNet((2, 2, 2, 2), shape)


def _pyramid_size(name: str) -> tuple[int, int] | None:
    """Return depth and widening of a PyramidNet, or None for our other encoders; refuse unknown names."""
    if not name.startswith(PYRAMIDNET):
        require_word("encoder.name", name, tuple(DEFAULT_WIDTHS))
        return None
    try:
        return pyramid_size(name)
    except ValueError as error:
        raise ValueError(f"encoder.name: {error}") from error
