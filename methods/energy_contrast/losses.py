"""Contrastive losses: similarities or vectors in, a scalar out, the mean over anchors.

Shapes: N anchors (or pairs), K negatives of each anchor, D size of a vector. Pure functions; no communication.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def pair_similarities(z0: Tensor, z1: Tensor) -> tuple[Tensor, Tensor]:
    """Return every cosine similarity that 2N anchors have with their positive and with their negatives.

    ``s(a, b) = <a, b> / (|a| |b|)``. The anchors are z0's rows, then z1's. The positive of an anchor is the row of the
    same index in the other view; its negatives are all rows of another index, in both views.

    Args:
        z0: (N, D) vectors of the first view, of any length.
        z1: (N, D) vectors of the second view.

    Returns:
        Similarities with the positive (2N,) and with the negatives (2N, 2N - 2).

    Raises:
        ValueError: If the shapes differ or N is less than 2.

    >>> positive, negatives = pair_similarities(torch.eye(3), torch.eye(3))
    >>> positive.sum().item(), negatives.shape
    (6.0, torch.Size([6, 4]))

    Source: SimCLR (arXiv:2002.05709), section 2.1 and algorithm 1.
    """
    if z0.dim() != 2 or z0.shape != z1.shape or len(z0) < 2:
        shapes = f"{tuple(z0.shape)} and {tuple(z1.shape)}"
        raise ValueError(f"pair_similarities: needs two views of at least two images, got {shapes}; use (N, D) twice")
    n = len(z0)
    z = F.normalize(torch.cat([z0, z1]), dim=1)
    blocks = (z @ z.T).view(2, n, 2, n).transpose(1, 2)  # (2, 2, N, N): view of the anchor, view of the other, i, j
    positive = blocks[0, 1].diagonal().repeat(2)  # (2N,)
    # The flattened N x N diagonal has stride N + 1: without the first element, it is the last column of N - 1 rows.
    off_diagonal = blocks.reshape(2, 2, n * n)[..., 1:].view(2, 2, n - 1, n + 1)[..., :-1].reshape(2, 2, n, n - 1)
    negatives = off_diagonal.transpose(1, 2).reshape(2 * n, 2 * (n - 1))  # (2N, 2N - 2)
    return positive, negatives


def info_nce(positive: Tensor, negatives: Tensor, *, temperature: float | Tensor) -> Tensor:
    """Return the InfoNCE loss: cross-entropy of finding the positive among K + 1 candidates.

    ``L = mean_i -log( exp(s_i+ / tau) / (exp(s_i+ / tau) + sum_j exp(s_ij / tau)) )``, computed as
    ``log(1 + xi)`` with ``xi = sum_j exp((s_ij - s_i+) / tau)``, which stays precise when the loss is small.

    Args:
        positive: (N,) similarity of each anchor with its positive.
        negatives: (N, K) similarities with its negatives.
        temperature: tau, divides similarities.

    Returns:
        () loss in nats, at least 0; log(K + 1) when all similarities are equal.

    Raises:
        ValueError: If the shapes do not fit or K is 0.

    >>> round(info_nce(torch.zeros(4), torch.zeros(4, 7), temperature=0.1).exp().item(), 4)
    8.0

    Source: CPC (arXiv:1807.03748), eq. 4; FlatNCE (arXiv:2107.01152), eq. 3, for one anchor.
    """
    return -F.logsigmoid(_log_odds(positive, negatives, temperature)).mean()


def nt_xent(z0: Tensor, z1: Tensor, *, temperature: float | Tensor) -> Tensor:
    """Return SimCLR's loss: InfoNCE of cosine similarities over 2N anchors, in both directions.

    ``L = 1/2N sum_i -log( exp(s(i, i+) / tau) / sum_{k != i} exp(s(i, k) / tau) )``, i and k over both views.

    Args:
        z0: (N, D) projections of the first view, of any length.
        z1: (N, D) projections of the second view.
        temperature: tau, divides cosine similarities.

    Returns:
        () loss in nats.

    Raises:
        ValueError: If the shapes differ or N is less than 2.

    >>> round(nt_xent(torch.ones(4, 2), torch.ones(4, 2), temperature=0.5).exp().item(), 4)
    7.0

    Source: SimCLR (arXiv:2002.05709), eq. 1.
    """
    return info_nce(*pair_similarities(z0, z1), temperature=temperature)


def flat_nce(
    positive: Tensor,
    negatives: Tensor,
    *,
    temperature: float | Tensor,
    include_positive: bool = False,
    exponent: float = 1.0,
) -> Tensor:
    """Return the FlatNCE loss. Its value is always exactly 1; only its gradient is meaningful.

    ``L = mean_i xi_i / detach(xi_i)`` with ``xi_i = sum_j exp((s_ij - s_i+) / tau)``, or with ``1 + xi_i`` in place of
    ``xi_i`` when the positive is included. The gradient is that of ``mean_i log xi_i`` (the decoupled contrastive
    loss), so every anchor keeps weight 1 however well its positive is recognised: per anchor,
    ``grad InfoNCE_i = (1 - p_i+) grad FlatNCE_i``. With the positive the gradient is that of InfoNCE.

    Of Hoelder-FlatNCE, ``xi_i = (sum_j exp((s_ij - s_i+) / tau)^gamma)^(1 / gamma)``: the gradient is that of FlatNCE
    at the temperature ``tau / gamma``, divided by gamma. At 0, xi_i is the geometric mean, whose gradient has all
    negatives alike; below 0, the negatives that are least like the anchor weigh most, and at -infinity only the least.
    With gamma < 1 the mean is below the arithmetic one, so that ``-log`` of it bounds no information from below.

    Args:
        positive: (N,) similarity of each anchor with its positive.
        negatives: (N, K) similarities with its negatives.
        temperature: tau, divides similarities.
        include_positive: Add the positive's own term, exp(0) = 1, to the sum (eq. 7).
        exponent: gamma, any finite number; 1 is FlatNCE.

    Returns:
        () loss, 1 unless a similarity is not finite.

    Raises:
        ValueError: If the shapes do not fit or K is 0.

    >>> flat_nce(torch.rand(4), torch.rand(4, 7), temperature=0.1).item()
    1.0

    Source: FlatNCE (arXiv:2107.01152), eq. 6 and 7, definition 3.6 and proposition 3.7.
    Departs from the paper: the ratio is taken as ``exp(v - detach(v))`` with ``v = log xi``, which cannot overflow. A
    mean in place of Hoelder's sum would give the same loss, since constant factors of xi cancel in the ratio. The loss
    is a mean over anchors; definition 3.6 has their sum. Proposition 3.7 lacks the factor 1 / gamma, which its proof
    has. Table 1 subtracts the positive's similarity from a mean of exponentials; eq. 6, which divides by its
    exponential, is followed.
    """
    if exponent == 0:
        check_pairs(positive, negatives)
        count = negatives.shape[1] + include_positive
        v = ((negatives - positive[:, None]) / temperature).sum(dim=1) / count  # (N,)
    else:
        log_odds = _log_odds(positive, negatives, temperature / exponent)
        v = (-F.logsigmoid(log_odds) if include_positive else -log_odds) / exponent  # (N,)
    return torch.exp(v - v.detach()).mean()


def decoupled(
    positive: Tensor, negatives: Tensor, *, temperature: float | Tensor, weights: Tensor | None = None
) -> Tensor:
    """Return the decoupled contrastive loss: InfoNCE without the positive in its own denominator.

    ``L = mean_i (-w_i s_i+ / tau + log sum_j exp(s_ij / tau))``. With all w at 1 its gradient is that of ``flat_nce``.

    Args:
        positive: (N,) similarity of each anchor with its positive.
        negatives: (N, K) similarities with its negatives.
        temperature: tau, divides similarities.
        weights: (N,) w, constants; None means 1 for every anchor.

    Returns:
        () loss in nats; may be negative, bounded below only through the similarities.

    Raises:
        ValueError: If the shapes do not fit or K is 0.

    >>> round(decoupled(torch.zeros(4), torch.zeros(4, 7), temperature=0.1).exp().item(), 4)
    7.0

    Source: DCL (arXiv:2110.06848), section 3, L_DC and, with weights, L_DCW.
    """
    loss = -_log_odds(positive, negatives, temperature)
    if weights is not None:
        loss = loss + (1 - weights) * positive / temperature
    return loss.mean()


def hyperspherical_energy(positive: Tensor, within: Tensor, *, temperature: float | Tensor) -> Tensor:
    """Return the decoupled hyperspherical energy loss: positives attract, images of the same view repel.

    ``L = mean_i (-s_i+ / tau + log sum_j exp(s_ij / tau) + log sum_j exp(s'_ij / tau))`` with s within the first view
    and s' within the second; no image is compared with another image's other view.

    Args:
        positive: (N,) similarity of the two views of each image.
        within: (2, N, K) similarities of each image with K others, in the first view and in the second.
        temperature: tau, divides similarities.

    Returns:
        () loss in nats; 2 log K - 1 / tau when positives agree and all other similarities are 0.

    Raises:
        ValueError: If the shapes do not fit or K is 0.

    >>> round(hyperspherical_energy(torch.ones(4), torch.zeros(2, 4, 3), temperature=0.5).item(), 4)
    0.1972

    Source: DHEL (arXiv:2405.18045), the definition of L_DHEL.
    """
    _check_within(positive, within)
    return (-positive / temperature + torch.logsumexp(within / temperature, dim=2).sum(dim=0)).mean()


def kernel_contrastive(positive: Tensor, within: Tensor, *, sharpness: float, repulsion: float) -> Tensor:
    """Return the kernel contrastive loss with a Gaussian kernel, whose expectation does not depend on the batch size.

    ``L = -2 mean_i k(s_i+) + gamma (mean_ij k(s_ij) + mean_ij k(s'_ij))``, ``k(s) = exp(-t (2 - 2 s))``, which is
    ``exp(-t |u - v|^2)`` of unit vectors; s within the first view, s' within the second.

    Args:
        positive: (N,) cosine similarity of the two views of each image.
        within: (2, N, K) cosine similarities of each image with K others, in the first view and in the second.
        sharpness: t.
        repulsion: gamma, weight of the similarities within views.

    Returns:
        () loss in [-2, 2 gamma].

    Raises:
        ValueError: If the shapes do not fit or K is 0.

    >>> kernel_contrastive(torch.ones(4), torch.ones(2, 4, 3), sharpness=2.0, repulsion=16.0)
    tensor(30.)

    Source: KCL (arXiv:2405.18045), the definition of L_KCL, with the Gaussian kernel.
    """
    _check_within(positive, within)
    near, apart = (torch.exp(-2 * sharpness * (1 - s)) for s in (positive, within))
    return -2 * near.mean() + repulsion * apart.mean(dim=(1, 2)).sum()


def global_contrastive(positive: Tensor, negatives: Tensor, means: Tensor, *, temperature: float) -> Tensor:
    """Return a loss whose gradient estimates that of the contrastive loss over a whole training set.

    ``L = mean_i (-s_i+ + 1/K sum_j w_ij s_ij)``, ``w_ij = exp(s_ij / tau) / u_i`` constants. With u_i the mean of
    ``exp(s_ij / tau)`` over these negatives, its gradient is tau times that of ``decoupled``.

    Args:
        positive: (N,) similarity of each anchor with its positive.
        negatives: (N, K) similarities with its negatives.
        means: (N,) u, constants above 0.
        temperature: tau, divides similarities.

    Returns:
        () loss; its value is not comparable between steps, since it changes with the weights w.

    Raises:
        ValueError: If the shapes do not fit or K is 0.

    >>> global_contrastive(torch.ones(4), torch.zeros(4, 7), torch.ones(4), temperature=0.1)
    tensor(-1.)

    Source: SogCLR (arXiv:2202.12387), the gradient estimator of algorithm 1.
    """
    check_pairs(positive, negatives)
    logits = negatives.detach().to(means) / temperature - means.detach().log()[:, None]  # log first: u may be huge
    weights = logits.exp().to(negatives)  # (N, K)
    return ((weights * negatives).mean(dim=1) - positive).mean()


def temperature_free(positive: Tensor, negatives: Tensor) -> Tensor:
    """Return InfoNCE of log-odds in place of similarities over a temperature.

    ``L = mean_i -log( exp(l_i+) / (exp(l_i+) + sum_j exp(l_ij)) )``, ``l = log((1 + s) / (1 - s)) = 2 artanh(s)``.

    Args:
        positive: (N,) cosine similarity of each anchor with its positive.
        negatives: (N, K) cosine similarities with its negatives.

    Returns:
        () loss in nats; log(K + 1) when all similarities are equal.

    Raises:
        ValueError: If the shapes do not fit or K is 0.

    >>> temperature_free(torch.tensor([0.5]), torch.tensor([[0.0]])).exp()  # odds of 3 to 1
    tensor(1.3333)

    Source: temperature-free InfoNCE (arXiv:2501.17683), the loss with the inverse hyperbolic tangent.
    Departs from the paper: similarities beyond 1 - 1e-6 in size are taken as that, without a gradient; their log-odds,
    and with them those of equal images, would be infinite.
    """
    most = 1 - 1e-6
    return info_nce(*(2 * torch.atanh(s.clamp(-most, most)) for s in (positive, negatives)), temperature=1.0)


def negative_spread(similarities: Tensor, num_images: int | None) -> Tensor:
    """Return how far similarities of negatives lie from those of vectors that are all equally far apart.

    ``L = mean_ij (s_ij + 1/(n - 1))^2``: n vectors whose similarities are all equal and least have -1/(n - 1).

    Args:
        similarities: (N, K) cosines of each anchor with its negatives.
        num_images: n, images of the training set; None means very many, for which the target is 0.

    Returns:
        () in [0, 4].

    >>> negative_spread(torch.tensor([[-0.5, 0.5]]), num_images=3)
    tensor(0.5000)

    Source: VRNS (arXiv:2506.09781), definition 5.7.
    """
    target = -1 / (num_images - 1) if num_images is not None and num_images > 1 else 0.0
    return (similarities - target).square().mean()


@torch.no_grad()
def von_mises_fisher_weights(positive: Tensor, *, sigma: float) -> Tensor:
    """Return weights of anchors that grow the further apart the two views of an image are.

    ``w_i = 2 - exp(s_i+ / sigma) / mean_k exp(s_k+ / sigma)``, constants, 1 on average over the anchors k.

    Args:
        positive: (N,) similarity of each anchor with its positive.
        sigma: Divides similarities; the larger, the more uniform the weights.

    Returns:
        (N,) weights, at most 2; negative for positives that stand far above the others.

    >>> von_mises_fisher_weights(torch.tensor([0.5, 0.5]), sigma=0.5)
    tensor([1., 1.])

    Source: DCL (arXiv:2110.06848), section 3, the weights of L_DCW; sigma is 0.5 in public implementations.
    """
    return 2 - len(positive) * (positive / sigma).softmax(dim=0)


def negative_cosine(prediction: Tensor, target: Tensor) -> Tensor:
    """Return how far predictions point away from their targets.

    ``L = -mean_i <p_i, t_i> / (|p_i| |t_i|)``

    Args:
        prediction: (N, D) vectors of any length.
        target: (N, D) vectors of any length; detach them where no gradient shall flow through them.

    Returns:
        () loss in [-1, 1]; -1 when all agree in direction.

    Raises:
        ValueError: If the shapes differ.

    >>> negative_cosine(torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 0.0]]))
    tensor(-0.6000)

    Source: SimSiam (arXiv:2011.10566), eq. 1.
    """
    if prediction.dim() != 2 or prediction.shape != target.shape:
        shapes = f"{tuple(prediction.shape)} and {tuple(target.shape)}"
        raise ValueError(f"negative_cosine: predictions and targets do not fit, got {shapes}; use (N, D) twice")
    return -F.cosine_similarity(prediction, target, dim=1).mean()


def _log_odds(positive: Tensor, negatives: Tensor, temperature: float | Tensor) -> Tensor:
    """Return (N,) log-odds of the positive against all negatives, ``-log xi``."""
    check_pairs(positive, negatives)
    return positive / temperature - torch.logsumexp(negatives / temperature, dim=1)


def check_pairs(positive: Tensor, negatives: Tensor) -> None:
    """Check that similarities with positives and with negatives belong to the same anchors.

    Args:
        positive: (N,).
        negatives: (N, K).

    Raises:
        ValueError: If the shapes do not fit or K is 0.

    >>> check_pairs(torch.ones(4), torch.zeros(4, 7))

    Source: ours.
    """
    if negatives.dim() != 2 or positive.shape != negatives.shape[:1] or negatives.shape[1] == 0:
        shapes = f"{tuple(positive.shape)} and {tuple(negatives.shape)}"
        raise ValueError(f"similarities: positive and negatives do not fit, got {shapes}; use (N,) and (N, K), K >= 1")


def _check_within(positive: Tensor, within: Tensor) -> None:
    if within.dim() != 3 or within.shape[:2] != (2, *positive.shape) or within.shape[2] == 0:
        shapes = f"{tuple(positive.shape)} and {tuple(within.shape)}"
        raise ValueError(f"similarities: positive and those within views do not fit, got {shapes}; use (N,), (2, N, K)")
