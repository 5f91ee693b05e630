"""Digits as an image set, of which 1,400 are for training."""

import pytest
import torch
from sklearn.datasets import load_digits

from ebclab.data.image_set import ImageSet


@pytest.fixture(scope="module")
def digits() -> tuple[ImageSet, ImageSet]:
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels * 15, dtype=torch.uint8).view(-1, 1, 8, 8)
    whole = ImageSet("digits", images, torch.tensor(labels), 3 * torch.arange(1797), (), (0.3,), (0.4,))
    return whole.rows(torch.arange(1400)), whole.rows(torch.arange(1400, 1797))
