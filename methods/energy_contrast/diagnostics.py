"""Diagnostics of a contrastive method during training.

Shapes: N anchors (or vectors), K negatives of each anchor, D size of a vector.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def effective_sample_size(logits: Tensor, present: Tensor | None = None) -> Tensor:
    """Return the effective sample size of each anchor's softmax weights, as a share of its candidates.

    ``ESS_i = 1 / (K sum_j w_ij^2)`` with ``w_i = softmax(logits_i)``: 1 when all K weigh the same, 1/K when one
    takes all.

    Args:
        logits: (N, K) similarities already divided by the temperature.
        present: (N, K) bool, which entries are candidates; K is then counted for each anchor. None means all.

    Returns:
        (N,) effective sample size as a share of K, in [1/K, 1]; nan for an anchor without candidates.

    >>> effective_sample_size(torch.zeros(2, 4))
    tensor([1., 1.])

    Source: FlatNCE (arXiv:2107.01152), eq. 10.
    """
    if present is None:
        weights = logits.softmax(dim=1)  # (N, K)
        return 1 / (logits.shape[1] * weights.square().sum(dim=1))
    weights = logits.masked_fill(~present, -torch.inf).softmax(dim=1)  # (N, K)
    return 1 / (present.sum(dim=1) * weights.square().sum(dim=1))


def log_k_saturation(info_nce: Tensor, *, num_negatives: int) -> Tensor:
    """Return how close InfoNCE's estimate of mutual information is to its ceiling.

    ``(log(K + 1) - L) / log(K + 1)``. ``log(K + 1) - L`` is InfoNCE's estimate of the mutual information between
    views in nats; K negatives and 1 positive make K + 1 candidates, so it cannot exceed ``log(K + 1)``, and its
    distance to this ceiling is L itself. Near 1 the estimate no longer says anything about the true value.

    Args:
        info_nce: () InfoNCE loss in nats.
        num_negatives: K, negatives of each anchor.

    Returns:
        () share of the ceiling: 0 at chance level, negative below it, at most 1.

    >>> log_k_saturation(torch.tensor(0.0), num_negatives=7)
    tensor(1.)

    Source: CPC (arXiv:1807.03748), section 2.3 and appendix A.1; FlatNCE (arXiv:2107.01152), section 2.
    """
    return 1 - info_nce / math.log(num_negatives + 1)


def alignment(z0: Tensor, z1: Tensor) -> Tensor:
    """Return how far the two views of an image lie apart on the unit sphere.

    ``mean_i |z0_i / |z0_i| - z1_i / |z1_i||^2``

    Args:
        z0: (N, D) vectors of the first view, of any length.
        z1: (N, D) vectors of the second view.

    Returns:
        () mean squared distance in [0, 4]; 0 when views agree.

    >>> alignment(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]]))
    tensor(2.)

    Source: Wang and Isola 2020 (arXiv:2005.10242), eq. 7 with alpha = 2.
    """
    return (F.normalize(z0, dim=1) - F.normalize(z1, dim=1)).square().sum(dim=1).mean()


def uniformity(z: Tensor) -> Tensor:
    """Return how evenly vectors cover the unit sphere, by a Gaussian potential.

    ``log mean_{i != j} exp(-2 |z_i / |z_i| - z_j / |z_j||^2)``

    Args:
        z: (N, D) vectors of different images, of any length; a vector of zeros stays one.

    Returns:
        () log potential in [-8, 0]; 0 when all vectors agree, near -4 when they are spread evenly in high dimension,
        nan for a single vector.

    >>> uniformity(torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
    tensor(-4.)

    Source: Wang and Isola 2020 (arXiv:2005.10242), section 4.1.2 with t = 2.
    """
    if len(z) == 1:
        return z.new_full((), math.nan)
    unit = F.normalize(z, dim=1)
    squared = unit.any(dim=1).to(unit)  # (N,) |a|^2: 1, or 0 for a vector of zeros
    cosine = (unit @ unit.T).fill_diagonal_(-torch.inf)  # (N, N)
    distance = 2 * (squared[:, None] + squared) - 4 * cosine  # 2 |a - b|^2 = 2 |a|^2 + 2 |b|^2 - 4 <a, b>
    log_potential = torch.logsumexp(-distance.flatten(), dim=0)
    return log_potential - math.log(len(z) * (len(z) - 1))


def effective_rank(z: Tensor) -> Tensor:
    """Return how many dimensions the vectors use.

    ``exp(-sum_k p_k log p_k)`` with ``p_k = sigma_k / sum sigma`` over the singular values sigma of z.

    Args:
        z: (N, D) vectors, neither centred nor normalised.

    Returns:
        () effective rank between 1 and min(N, D); 1 when all vectors are zero, nan when one is not finite.

    >>> round(effective_rank(torch.eye(4)).item(), 6)
    4.0

    Source: Roy and Vetterli 2007, definition 1; RankMe (arXiv:2210.02885), eq. 1.
    Departs from the paper: singular values are roots of eigenvalues of the smaller Gram matrix, in float64, which
    costs less than a decomposition of z; no constant is added inside the logarithm, since 0 log 0 is taken as 0.
    """
    wide = z.double()
    gram = wide.T @ wide if z.shape[0] >= z.shape[1] else wide @ wide.T
    finite = gram.isfinite()
    sigma = torch.linalg.eigvalsh(gram.where(finite, 0.0)).clamp_min(0).sqrt()
    p = sigma / sigma.sum().clamp_min(torch.finfo(sigma.dtype).tiny)
    rank = torch.special.entr(p).sum().exp()
    return torch.where(finite.all(), rank, torch.nan).to(z.dtype)


def embedding_spread(z: Tensor) -> Tensor:
    """Return how far vectors vary over images on the unit sphere.

    ``sqrt(D) mean_d std_i(z_i / |z_i|)_d``

    Args:
        z: (N, D) vectors of different images, of any length.

    Returns:
        () spread in [0, sqrt(N / (N - 1))]; 0 when all vectors agree, near 1 when they are spread evenly, nan for a
        single vector.

    >>> embedding_spread(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor(1.0000)

    Source: SimSiam (arXiv:2011.10566), section 4.1, there without the factor sqrt(D).
    """
    if len(z) == 1:
        return z.new_full((), math.nan)
    return math.sqrt(z.shape[1]) * F.normalize(z, dim=1).std(dim=0).mean()


def diagnose(
    projection: Tensor, positive: Tensor, negatives: Tensor, *, info_nce: Tensor, temperature: float | Tensor
) -> dict[str, Tensor]:
    """Return the diagnostics of a step with two views, all detached scalars.

    Args:
        projection: (2N, D) projections, the first view's rows before the second's.
        positive: (2N,) similarity of each anchor with its positive.
        negatives: (2N, K) similarities with its negatives.
        info_nce: () InfoNCE of these similarities, in nats.
        temperature: tau, divides similarities.

    Returns:
        ``log_k_saturation``; ``ess`` over the negatives and ``ess_with_positive`` over all candidates (means over
        anchors); ``alignment``, ``uniformity`` and ``embedding_spread`` (means of both views) and ``effective_rank`` of
        the projections.

    >>> found = diagnose(torch.eye(4), torch.zeros(4), torch.zeros(4, 2), info_nce=torch.tensor(1.0), temperature=1.0)
    >>> sorted(found)
    ['alignment', 'effective_rank', 'embedding_spread', 'ess', 'ess_with_positive', 'log_k_saturation', 'uniformity']

    Source: the functions of this file.
    """
    with torch.no_grad():
        candidates = torch.cat([positive[:, None], negatives], dim=1) / temperature  # (2N, 1 + K)
        z0, z1 = projection.chunk(2)
        return {
            "log_k_saturation": log_k_saturation(info_nce.detach(), num_negatives=negatives.shape[1]),
            "ess": effective_sample_size(candidates[:, 1:]).mean(),
            "ess_with_positive": effective_sample_size(candidates).mean(),
            "alignment": alignment(z0, z1),
            "uniformity": (uniformity(z0) + uniformity(z1)) / 2,
            "effective_rank": effective_rank(projection),
            "embedding_spread": (embedding_spread(z0) + embedding_spread(z1)) / 2,
        }
