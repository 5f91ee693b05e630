"""A small residual encoder for images of 8x8 to 32x32 pixels, quick enough for a laptop's CPU."""

from __future__ import annotations

from energy_contrast.networks.resnet import ResNet


class SmallEncoder(ResNet):
    """A residual network with a 3x3 stem and three stages of one basic block.

    Stages have w, 2w and 4w channels and strides 1, 2 and 2; the embedding is the pooled output of the last.
    Parameters are named and initialised as in ``ResNet``.

    Args:
        in_channels: Channels of the images.
        stem: ``cifar`` or ``strided``, see ``make_stem``.
        width: w, channels of the first stage; 16 gives 64-dimensional embeddings.
        batch_norm: ``global`` (batch norm) or ``none`` (no norm, convolutions get biases).
        activation: ``relu`` or ``leaky_relu`` (slope 0.2).
        initialisation: ``kaiming`` or ``torch``.
        pooling: ``mean`` or ``quarters``, see ``DrawnEncoder.pool``.

    Source: the CIFAR network of He et al. 2016 (arXiv:1512.03385), section 4.2, with n = 1.
    Departs from the paper: changes of shape use a 1x1 convolution (option B) instead of zero padding (option A), so
    that all encoders share one block; the strided stem and the averages over quarters are ours.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        stem: str = "cifar",
        width: int = 16,
        batch_norm: str = "global",
        activation: str = "relu",
        initialisation: str = "kaiming",
        pooling: str = "mean",
    ) -> None:
        super().__init__(
            (1, 1, 1),
            in_channels=in_channels,
            stem=stem,
            width=width,
            batch_norm=batch_norm,
            activation=activation,
            initialisation=initialisation,
            pooling=pooling,
        )
