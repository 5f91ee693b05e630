"""Average precision of a ranking, for multi-label images (Everingham et al., 2010, section 4.2).

Images are ranked by their score for a class. Among the first k images, t_k have the class, of P that have it in total:
precision ``p_k = t_k / k``, recall ``r_k = t_k / P``. Interpolated precision at recall r is the maximum precision at
that recall or above, ``q(r) = max over k with r_k >= r of p_k``.

    11-point (PASCAL VOC until 2009):  AP = 1/11 sum over r in {0, 0.1, ..., 1} of q(r)
    area (PASCAL VOC from 2010 on):    AP = sum over k of (r_k - r_{k-1}) q(r_k)

Images of equal score have no order, so precision and recall are computed only after the last of them; the challenge's
own code ranks them in the order of its files. Shapes: n images, K classes.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Interpolation = Literal["11-point", "area"]


def average_precision(scores: Tensor, relevant: Tensor, interpolation: Interpolation) -> float:
    """Return AP, in [0, 1], of one class; the module docstring has the equations."""
    if scores.isnan().any():
        count = int(scores.isnan().sum())
        raise ValueError(f"scores: must be numbers, got NaN for {count:,} of {len(scores):,} images")
    positives = int(relevant.sum())
    if positives == 0:
        raise ValueError(f"relevant: at least one image must have the class, got 0 of {len(relevant):,}")
    order = scores.argsort(descending=True, stable=True)
    found = relevant[order].long().cumsum(dim=0)  # t_k
    ends = torch.cat([scores[order].diff() != 0, torch.ones(1, dtype=torch.bool, device=scores.device)])
    hits = found[ends]
    precision = hits.double() / (1 + ends.nonzero().flatten())
    best = precision.flip(0).cummax(dim=0).values.flip(0)  # q(r_k)
    if interpolation == "area":
        gained = hits.diff(prepend=hits.new_zeros(1))
        return float((gained * best).sum() / positives)
    tenths = torch.arange(11, device=scores.device)
    reached = torch.searchsorted(10 * hits, tenths * positives)  # first k with r_k >= r, in integers
    return float(best[reached].mean())
