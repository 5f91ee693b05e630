"""Adversarial attacks on a classifier of pixels, bounded by eps in the L-infinity norm.

All results lie in ``|x' - x| <= eps`` and in [0, 1]; the classifier is not modified. Random numbers depend only on a
seed and an image's key, so results do not depend on batch size or order.

Shapes: n images, (n, C, H, W) pixels in [0, 1], K classes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from ebclab.data.hashing import hash_words, integers_below, unit_interval
from ebclab.data.photograph import central_squares
from ebclab.data.preprocessing import Preprocessing
from ebclab.evaluation.linear import LinearHead

Classify = Callable[[Tensor], Tensor]
"""Maps pixels to logits (n, K)."""

_START_SALT, _STRIPE_SALT, _SQUARE_SALT = 0x7374617274, 0x737472697065, 0x737175617265
_LARGEST_SQUARE = 0.8  # fraction of an image's area that the first squares cover
_HALVINGS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)  # fractions of the queries after which it is halved


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


def loss_gradients(classify: Classify, x: Tensor, labels: Tensor) -> Tensor:
    """Return the gradient (n, C, H, W) of ``sum_i -log softmax(z(x_i))_{y_i}`` with respect to the pixels."""
    with torch.enable_grad():
        pixels = x.detach().requires_grad_()
        loss = functional.cross_entropy(classify(pixels), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, pixels)
    return gradient


def fgsm(classify: Classify, x: Tensor, labels: Tensor, eps: float) -> Tensor:
    """Return ``clip(x + eps sign(gradient))``: the fast gradient sign method (Goodfellow et al., 2015, section 4)."""
    return (x + eps * loss_gradients(classify, x, labels).sign()).clamp(0, 1)


def pgd(classify: Classify, x: Tensor, labels: Tensor, *, eps: float, step: float, steps: int, start: Tensor) -> Tensor:
    """Return the last iterate of ``x' <- clip(x + clip_eps(x' + step sign(gradient) - x))`` (Madry et al., 2018, 2.1).

    ``start`` has the initial pixels, e.g. those of ``random_start``, or ``x`` itself.
    """
    moved = start
    for _ in range(steps):
        moved = moved + step * loss_gradients(classify, moved, labels).sign()
        moved = (x + (moved - x).clamp(-eps, eps)).clamp(0, 1)
    return moved


def random_start(x: Tensor, keys: Tensor, *, eps: float, seed: int) -> Tensor:
    """Return ``clip(x + u)`` with u uniform in [-eps, eps] for each pixel, by a hash of the seed and the keys (n,)."""
    places = torch.arange(x[0].numel(), device=x.device)
    draws = unit_interval(hash_words(_START_SALT, seed, keys.to(x.device)[:, None], places))  # (n, C H W)
    return (x + (eps * (2 * draws - 1)).to(x.dtype).view_as(x)).clamp(0, 1)


def square_search(
    classify: Classify, x: Tensor, labels: Tensor, keys: Tensor, *, eps: float, queries: int, seed: int
) -> Tensor:
    """Return the best of ``queries`` candidates per image: the Square attack (Andriushchenko et al., 2020, section 3).

    A black-box attack that uses logits and no gradients. It starts with vertical stripes of +-eps; each candidate sets
    one square, in each channel, to +-eps, and is accepted if it lowers the margin ``z_y - max_{k != y} z_k``. Squares
    shrink by the authors' schedule, rescaled from 10,000 queries; an image is not changed further once its margin is
    negative. Departures: each image has its own squares, whereas the authors' code uses the same for all images of a
    batch; a square whose signs change nothing costs a query, whereas the authors' code draws its signs again.
    """
    with torch.no_grad():
        height, width = x.shape[2:]
        keys = keys.to(x.device)
        numbers = torch.arange(x.shape[1] * width, device=x.device)
        stripes = _signs(hash_words(_STRIPE_SALT, seed, keys[:, None], numbers)).to(x.dtype)
        best = (x + eps * stripes.view(len(x), -1, 1, width)).clamp(0, 1)
        margins = _margins(classify(best), labels)
        for query in range(1, queries):
            rows = (margins >= 0).nonzero()[:, 0]
            if len(rows) == 0:
                break
            side = _side(query / queries, height, width)
            inside, signs = _squares(keys[rows], x.shape[1:], side, seed, query)
            guess = torch.where(inside, (x[rows] + eps * signs.to(x.dtype)).clamp(0, 1), best[rows])
            found = _margins(classify(guess), labels[rows])
            falls = found < margins[rows]
            best[rows[falls]], margins[rows[falls]] = guess[falls], found[falls]
    return best


def clearly_more(first: Tensor, second: Tensor) -> bool:
    """Return whether ``first`` is true significantly more often than ``second``: by over two standard errors.

    ``mean_i d_i > 2 std(d) / sqrt(n)`` with d_i the difference of the two at image i; False for fewer than two images.
    """
    differences = first.double() - second.double()
    if len(differences) < 2:
        return False
    error = float(differences.std()) / math.sqrt(len(differences))
    return float(differences.mean()) > 2 * error


def _margins(logits: Tensor, labels: Tensor) -> Tensor:
    """Return ``z_y - max_{k != y} z_k``, (n,)."""
    right = logits.gather(1, labels[:, None])
    others = logits.scatter(1, labels[:, None], -math.inf)
    return right[:, 0] - others.amax(dim=1)


def _side(done: float, height: int, width: int) -> int:
    area = _LARGEST_SQUARE / 2 ** sum(done > share for share in _HALVINGS)
    return max(1, min(height, width, round(math.sqrt(area * height * width))))


def _squares(keys: Tensor, shape: torch.Size, side: int, seed: int, query: int) -> tuple[Tensor, Tensor]:
    """Return the mask of each image's square, (n, 1, H, W) bool, and its signs, (n, C, 1, 1)."""
    channels, height, width = shape
    words = hash_words(_SQUARE_SALT, seed, query, keys[:, None], torch.arange(channels + 2, device=keys.device))
    top, left = integers_below(words[:, 0], height - side + 1), integers_below(words[:, 1], width - side + 1)
    within = []
    for begin, length in ((top, height), (left, width)):
        places = torch.arange(length, device=keys.device) - begin[:, None]
        within.append((places >= 0) & (places < side))  # (n, length)
    inside = within[0][:, None, :, None] & within[1][:, None, None, :]
    return inside, _signs(words[:, 2:])[:, :, None, None]


def _signs(bits: Tensor) -> Tensor:
    return (unit_interval(bits) < 0.5).double() * 2 - 1
