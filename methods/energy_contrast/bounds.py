"""Variational bounds on mutual information as losses: similarities in, a scalar out; its negative is the estimate.

``s / tau`` is the critic. As K goes to infinity, every estimate is a lower bound on the mutual information of pairs.
With finite K, ``donsker_varadhan`` and ``fenchel_legendre`` overestimate theirs, since the logarithm is concave.
InfoNCE and FlatNCE, of the same family, are in ``losses.py``.

Shapes: N anchors, K negatives of each anchor. Pure functions; no communication.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from energy_contrast.losses import check_pairs


def donsker_varadhan(positive: Tensor, negatives: Tensor, *, temperature: float | Tensor) -> Tensor:
    """Return the negative of the Donsker-Varadhan bound, each anchor with its own negatives.

    ``L = mean_i (-s_i+ / tau + log 1/K sum_j exp(s_ij / tau))``, the decoupled contrastive loss less log K.

    Args:
        positive: (N,) similarity of each anchor with its positive.
        negatives: (N, K) similarities with its negatives.
        temperature: tau, divides similarities.

    Returns:
        () in nats.

    Raises:
        ValueError: If the shapes do not fit or K is 0.

    >>> donsker_varadhan(torch.ones(4), torch.zeros(4, 7), temperature=0.5).round(decimals=4)
    tensor(-2.)

    Source: FlatNCE (arXiv:2107.01152), eq. 28; Donsker and Varadhan 1983.
    Departs from table 1 of the paper, as its eq. 28 does: each anchor has the logarithm of its own negatives' mean; the
    bound of Donsker and Varadhan, as in table 1, has one for all.
    """
    return _log_mean_odds(positive, negatives, temperature).mean()


def nwj(positive: Tensor, negatives: Tensor, *, temperature: float | Tensor) -> Tensor:
    """Return the negative of the bound of Nguyen, Wainwright and Jordan, which is unbiased for any K.

    ``L = mean_i (-s_i+ / tau + 1/K sum_j exp(s_ij / tau - 1))``

    Args:
        positive: (N,) similarity of each anchor with its positive.
        negatives: (N, K) similarities with its negatives.
        temperature: tau, divides similarities; below 0.012, float32 cannot hold the exponentials.

    Returns:
        () in nats.

    Raises:
        ValueError: If the shapes do not fit or K is 0.

    >>> nwj(torch.ones(4), torch.ones(4, 7), temperature=1.0)
    tensor(0.)

    Source: FlatNCE (arXiv:2107.01152), table 1; Nguyen, Wainwright and Jordan 2010 (arXiv:0809.0853).
    """
    check_pairs(positive, negatives)
    return (torch.exp(negatives / temperature - 1).mean(dim=1) - positive / temperature).mean()


def fenchel_legendre(positive: Tensor, negatives: Tensor, *, temperature: float | Tensor) -> Tensor:
    """Return the negative of the Fenchel-Legendre bound at the optimal u, held constant.

    ``L = mean_i (u_i + exp(-u_i) 1/K sum_j exp((s_ij - s_i+) / tau) - 1)``, minimal at
    ``u_i = log 1/K sum_j exp((s_ij - s_i+) / tau)``: there the value is that of ``donsker_varadhan`` and the gradient
    that of ``flat_nce``.

    Args:
        positive: (N,) similarity of each anchor with its positive.
        negatives: (N, K) similarities with its negatives.
        temperature: tau, divides similarities.

    Returns:
        () in nats.

    Raises:
        ValueError: If the shapes do not fit or K is 0.

    >>> fenchel_legendre(torch.ones(4), torch.zeros(4, 7), temperature=0.5).round(decimals=4)
    tensor(-2.)

    Source: FlatNCE (arXiv:2107.01152), table 1 and eq. 26; Guo et al. 2022 (arXiv:2107.01131), the bound FLO.
    Departs from the papers: u is not learned but optimal for each anchor's own negatives, so that the value is no lower
    bound at finite K. FlatNCE's appendix D reports that learning u failed. Eq. 9 is followed but for its sum, which
    includes the positive. The best u that is printed there lacks the logarithm, which eq. 29 has; table 1 leaves out
    the constant 1, and eq. 26 has it with the wrong sign.
    """
    log_odds = _log_mean_odds(positive, negatives, temperature)  # (N,)
    u = log_odds.detach()
    return (u + torch.exp(log_odds - u) - 1).mean()


def _log_mean_odds(positive: Tensor, negatives: Tensor, temperature: float | Tensor) -> Tensor:
    """Return (N,) ``log 1/K sum_j exp((s_ij - s_i+) / tau)``."""
    check_pairs(positive, negatives)
    logits = negatives / temperature
    return torch.logsumexp(logits, dim=1) - math.log(logits.shape[1]) - positive / temperature
