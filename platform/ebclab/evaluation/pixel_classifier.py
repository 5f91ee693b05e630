"""A linear classifier on a frozen encoder as one differentiable function of pixels, and its input pixels."""

from __future__ import annotations

import copy
from dataclasses import replace

from torch import Tensor, nn
from torch.nn import functional

from ebclab.data.photograph import central_squares
from ebclab.data.preprocessing import Preprocessing
from ebclab.evaluation.linear_head import LinearHead


class PixelClassifier(nn.Module):
    """Logits of pixels in [0, 1]: preprocessing, a copy of the encoder in eval mode, the classifier in float64.

    Attacks operate on the copy; the original encoder's weights, running statistics and training modes are unchanged.
    """

    def __init__(self, encoder: nn.Module, preprocessing: Preprocessing, head: LinearHead) -> None:
        super().__init__()
        self._encoder = copy.deepcopy(encoder).eval().requires_grad_(False)
        self._preprocessing = replace(preprocessing, read_size=0)  # done by ``attackable_pixels``, on bytes
        self._head = head

    def forward(self, pixels: Tensor) -> Tensor:
        """Return logits (n, K) float64 of pixels (n, C, H, W)."""
        return self._head.logits(self._encoder(self._preprocessing(pixels)).double())


def attackable_pixels(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Return uint8 images as float32 in [0, 1], resized to the encoder's image size if they are larger.

    An attack on larger images would change details that the resize discards.
    """
    read_size, side = preprocessing.read_size, preprocessing.image_size
    if read_size and images.shape[-2:] != (read_size, read_size):
        images = central_squares(images, read_size, preprocessing.resampling)
    pixels = images.float() / 255
    if max(pixels.shape[-2:]) > side:
        pixels = functional.interpolate(pixels, (side, side), mode="bilinear", antialias=True).clamp(0, 1)
    return pixels
