"""Shared by methods without negatives: passes, the loss of predicting one view, products of dimensions, metrics.

Shapes: B images of the global batch, b of this rank, C channels, H x W pixels, P projection size; the axis of size 2
holds the views.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from energy_contrast.losses import info_nce, negative_cosine, pair_similarities
from energy_contrast.method import Method
from energy_contrast.networks.heads import at_least_float32
from energy_contrast.parallel import gather

TEMPERATURE = 0.2
"""Temperature of the metrics: SimCLR's default, so that the metrics of methods can be compared."""


def project_apart(method: Method, views: Tensor) -> Tensor:
    """Return the projections ``z = g(f(x))`` of all ranks, each view in a pass of its own.

    Batch norm then sees one view at a time.

    Args:
        method: Has f, its ``encoder``, and g, its ``head``.
        views: (2, b, C, H, W) of this rank.

    Returns:
        (2, B, P), float32 or wider.

    Source: Barlow Twins (arXiv:2103.03230), algorithm 1; VICReg (arXiv:2105.04906), algorithm 1.
    """
    head = cast(nn.Module, method.head)
    return gather(torch.stack([at_least_float32(head(method.encode(view))) for view in views]), dim=1)


def predict_across(prediction: Tensor, target: Tensor) -> Tensor:
    """Return the negative cosine of each view's prediction and the other view's target, the mean of both directions.

    ``1/2 (D(p_0, t_1) + D(p_1, t_0))`` with D the negative cosine.

    Args:
        prediction: (2, B, P).
        target: (2, B, P); no gradient flows through it.

    Returns:
        () in [-1, 1].

    >>> views = torch.eye(2).expand(2, 2, 2)
    >>> predict_across(views, views)
    tensor(-1.)

    Source: SimSiam (arXiv:2011.10566), eq. 2 and 4.
    """
    target = target.detach()
    return (negative_cosine(prediction[0], target[1]) + negative_cosine(prediction[1], target[0])) / 2


def cross_products(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the diagonal of ``a^T b``, and the sum of the squares of its other elements.

    With fewer images than dimensions, they are summed from (B, B) products of images: ``|a^T b|^2 = <a a^T, b b^T>``.

    Args:
        a: (B, P).
        b: (B, P), which may be ``a``.

    Returns:
        (P,), and () at least 0, up to rounding.

    >>> cross_products(torch.tensor([[1.0, 1.0]]), torch.tensor([[2.0, 3.0]]))
    (tensor([2., 3.]), tensor(13.))

    Source: VICReg (arXiv:2105.04906), eq. 3 and 4; Barlow Twins (arXiv:2103.03230), eq. 1 and 2. The products of images
    are ours.
    """
    diagonal = (a * b).sum(dim=0)
    if len(a) < a.shape[1]:
        images = a @ a.T
        squares = images * (images if a is b else b @ b.T)
    else:
        squares = (a.T @ b).square()
    return diagonal, squares.sum() - diagonal.square().sum()


@torch.no_grad()
def measure_pairs(method: Method, projection: Tensor) -> dict[str, Tensor]:
    """Return SimCLR's metrics of projections, for methods whose loss does not compute them.

    Args:
        method: The method that made them.
        projection: (2, B, P).

    Returns:
        What ``Method.measure`` returns, at temperature 0.2; ``info_nce`` is log(2B - 1) when all projections agree,
        which is the collapse to watch for.
    """
    positive, negatives = pair_similarities(*projection)
    readable = info_nce(positive, negatives, temperature=TEMPERATURE)
    return method.measure(readable, projection.flatten(0, 1), positive, negatives, temperature=TEMPERATURE)
