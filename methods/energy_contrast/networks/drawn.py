"""What all our encoders share: stages, activations and initialisation by name, drawn again on demand, and pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from energy_contrast.networks.batch_norm import GlobalBatchNorm2d
from energy_contrast.settings import require_word

LEAKY_SLOPE = 0.2
ACTIVATIONS = ("relu", "leaky_relu")
_FEWEST_CHANNELS = 8  # of the input of a 1x1 convolution with a stride


@dataclass(frozen=True)
class EncoderShape:
    """What is chosen of every one of our encoders.

    Attributes:
        in_channels: Channels of the images.
        width: Channels of the first stage, or of a PyramidNet's stem.
        stem: ``cifar``, ``strided`` or ``imagenet``, see ``make_stem``.
        batch_norm: ``global`` (batch norm) or ``none`` (no norm, convolutions get biases).
        activation: ``relu`` or ``leaky_relu`` (slope 0.2).
        initialisation: ``kaiming`` or ``torch``, see ``DrawnEncoder``.
        pooling: ``mean`` or ``quarters``, see ``DrawnEncoder.pool``.
    """

    in_channels: int
    width: int
    stem: str = "cifar"
    batch_norm: str = "global"
    activation: str = "relu"
    initialisation: str = "kaiming"
    pooling: str = "mean"

    @property
    def bias(self) -> bool:
        """Whether convolutions have biases, which a norm after them would take away."""
        return self.batch_norm == "none"


class DrawnEncoder(nn.Module):
    """An encoder of convolutions and batch norms whose initialisation is chosen by name.

    With ``initialisation`` kaiming, convolutions start as in torchvision (Kaiming normal, fan-out, with the gain of the
    activation) and their biases at zero; with torch, they keep torch's default: weights and biases uniform in
    ``+/- 1 / sqrt(fan_in)``, as in the code released with EBCLR and with JEM.

    Args:
        shape: Stem, width, norm, activation, initialisation and pooling.

    Attributes:
        embedding_size: D, the channels of the last stage, four times as many with ``quarters``.
    """

    embedding_size: int

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.shape = shape
        self.stage_names: list[str] = []

    def add_stage(self, new_block: Callable[..., nn.Module], sizes: Sequence[tuple[int, int]]) -> None:
        """Add the stage ``layer1``, ``layer2``, ... of residual blocks; the first of all but ``layer1`` has stride 2.

        Args:
            new_block: Returns a block, given its two channels, ``stride`` and ``shape``.
            sizes: The channels of each block, as ``new_block`` takes them.
        """
        strides = [2 if self.stage_names else 1] + [1] * (len(sizes) - 1)
        blocks = [
            new_block(*size, stride=stride, shape=self.shape) for size, stride in zip(sizes, strides, strict=True)
        ]
        self.stage_names.append(f"layer{len(self.stage_names) + 1}")
        self.add_module(self.stage_names[-1], nn.Sequential(*blocks))

    def finish(self, channels: int) -> None:
        """Set the embedding size, of a last stage of ``channels`` channels, and the initial weights."""
        self.embedding_size = channels * (4 if self.shape.pooling == "quarters" else 1)
        self.initialise()

    def through_stages(self, maps: Tensor) -> Tensor:
        """Map (B, channels, H, W) to the output of the last stage."""
        for name in self.stage_names:
            maps = self.get_submodule(name)(maps)
        return maps

    def pool(self, maps: Tensor) -> Tensor:
        """Map (B, channels, H, W) to embeddings (B, D): averages over all pixels, or those of ``mean_of_quarters``."""
        return mean_of_quarters(maps) if self.shape.pooling == "quarters" else maps.mean(dim=(2, 3))

    def reset_parameters(self) -> None:
        """Draw all weights again from torch's global generator."""
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, GlobalBatchNorm2d)):
                module.reset_parameters()
        self.initialise()

    def initialise(self) -> None:
        """Replace torch's default initial weights of convolutions by those of ``initialisation``."""
        if self.shape.initialisation == "torch":
            return
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and not module.weight.is_meta:  # without memory, drawing takes 2 ms each
                nn.init.kaiming_normal_(
                    module.weight,
                    a=LEAKY_SLOPE,
                    mode="fan_out",
                    nonlinearity=self.shape.activation,  # type: ignore[arg-type]
                )
                if module.bias is not None:
                    nn.init.zeros_(module.bias)


def mean_of_quarters(maps: Tensor) -> Tensor:
    """Return averages over the four quarters of maps; along an odd side, quarters share the middle row or column.

    ``h_{4c + 2i + j} = mean_{y in Q_i, x in R_j} m_c(y, x)``: Q_0 and Q_1 are the first and the last ceil(H / 2) rows,
    R_0 and R_1 the first and the last ceil(W / 2) columns.

    Args:
        maps: (B, C, H, W), with H and W of 2 or more.

    Returns:
        (B, 4C).

    Raises:
        ValueError: If a side is a single pixel.

    >>> import torch
    >>> mean_of_quarters(torch.arange(9.0).view(1, 1, 3, 3))
    tensor([[2., 3., 5., 6.]])

    Source: ours; the cells are those of torch's ``adaptive_avg_pool2d`` to 2x2, whose gradient on a GPU is
    not deterministic.
    """
    height, width = maps.shape[-2:]
    if min(height, width) < 2:
        raise ValueError(
            f"encoder.pooling: quarters need maps of 2x2 pixels at least after the last stage, got {height}x{width}; "
            "use mean, larger images or the cifar stem"
        )
    kernel = ((height + 1) // 2, (width + 1) // 2)
    return functional.avg_pool2d(maps, kernel, stride=(height // 2, width // 2)).flatten(1)


def make_activation(name: str, *, inplace: bool = True) -> nn.Module:
    """Return an activation, which works in place unless asked not to.

    ``relu(x) = max(x, 0)``, ``leaky_relu(x) = max(x, 0.2 x)``

    Args:
        name: ``relu`` or ``leaky_relu``.
        inplace: Write over the input.

    Returns:
        The module.

    Raises:
        ValueError: If the name is unknown.

    >>> make_activation("leaky_relu").negative_slope
    0.2

    Source: slope of EBCLR (arXiv:2202.04933), as released.
    """
    require_word("activation", name, ACTIVATIONS)
    return nn.ReLU(inplace=inplace) if name == "relu" else nn.LeakyReLU(LEAKY_SLOPE, inplace=inplace)


def make_norm(channels: int, shape: EncoderShape) -> nn.Module:
    """Return the norm of maps (B, channels, H, W): batch norm for ``global``, the identity for ``none``.

    >>> make_norm(3, EncoderShape(in_channels=1, width=4, batch_norm="none"))
    Identity()
    """
    return GlobalBatchNorm2d(channels) if shape.batch_norm == "global" else nn.Identity()


def make_stem(channels: int, shape: EncoderShape) -> tuple[nn.Conv2d, nn.Module]:
    """Return the first convolution and the pooling after it.

    ``cifar`` is a 3x3 convolution of stride 1 without pooling, ``strided`` the same with stride 2, ``imagenet`` one of
    7x7 with stride 2, then max-pooling with stride 2.

    Args:
        channels: Channels of the convolution.
        shape: Has the stem.

    >>> make_stem(8, EncoderShape(in_channels=3, width=4))[1]
    Identity()

    Source: He et al. 2016 (arXiv:1512.03385), table 1; CIFAR stem as in SimCLR (arXiv:2002.05709), appendix B.9; the
    strided stem is ours, a quarter of the arithmetic at the same width.
    """
    if shape.stem != "imagenet":
        stride = 2 if shape.stem == "strided" else 1
        return nn.Conv2d(shape.in_channels, channels, 3, stride=stride, padding=1, bias=shape.bias), nn.Identity()
    convolution = nn.Conv2d(shape.in_channels, channels, 7, stride=2, padding=3, bias=shape.bias)
    return convolution, nn.MaxPool2d(3, stride=2, padding=1)


def make_shortcut(in_channels: int, channels: int, stride: int, shape: EncoderShape) -> nn.Conv2d:
    """Return the 1x1 convolution of a shortcut, from (B, in_channels, H, W) to (B, channels, H / stride, W / stride).

    Source: He et al. 2016 (arXiv:1512.03385), section 3.3, option B.
    Departs from torch: with less than 8 channels and a stride, the pixels between are dropped first, with the same
    result; oneDNN of torch 2.14 writes beyond its memory in the gradient of such a convolution in NHWC order (AVX2).
    """
    kind = _NarrowShortcut if stride > 1 and in_channels < _FEWEST_CHANNELS else nn.Conv2d
    return kind(in_channels, channels, 1, stride=stride, bias=shape.bias)


class _NarrowShortcut(nn.Conv2d):
    """A 1x1 convolution with a stride, as one without it of every stride-th pixel."""

    def forward(self, input: Tensor) -> Tensor:  # torch's name
        step_y, step_x = self.stride
        return functional.conv2d(input[..., ::step_y, ::step_x], self.weight, self.bias)
