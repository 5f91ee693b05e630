"""Out-of-distribution detection: detectors, images made of others, metrics of scores: AUROC, FPR at 95 % recall, AUPR.

Detectors use features and a linear classifier of them. They are those of pytorch-ood, with ViM in float64 and the
settings of OpenOOD. Inside images are in-distribution, outside images are out-of-distribution. Scores are larger for
images that appear out-of-distribution, which is the positive class, as in OpenOOD v1.5.

Shapes: n fitted rows or outside images, m scored rows or inside images, D features, K classes, R directions in which
features vary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, log
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from ebclab.data.image_set import ImageSet
from ebclab.errors import DataError
from ebclab.evaluation.answers import wilson_interval
from ebclab.evaluation.comparison import CHANCE
from ebclab.evaluation.linear import LinearHead
from ebclab.evaluation.seeds_and_images import quantile

NEIGHBOURS = 50
_GEN_POWER = 0.1
_GEN_CLASSES = 100
_ROUNDING = 1e-5  # relative to a feature's norm; rounding errors of a float32 network are about a tenth of it


@dataclass(frozen=True)
class Detector:
    """An out-of-distribution detector, fitted if it has parameters."""

    name: str  # letters, digits and hyphens
    title: str  # name in tables
    protocol: str  # its equation and its settings
    # maps features (m, D) float32 and logits (m, K) float64, or in a card an ``ImageSet``, to scores (m,), which are
    # larger for out-of-distribution images
    score: Callable[..., Tensor]


def fit_detectors(features: Tensor, labels: Tensor, head: LinearHead) -> tuple[list[Detector], list[str]]:
    """Return all detectors, fitted on features (n, D) and labels (n,) that the linear classifier was fitted on, too.

    Beside them a remark for each detector that could not be fitted.
    """
    detectors = [*_of_logits(), _of_neighbours(features, labels), *_of_distances(features, labels)]
    remarks = []
    if (virtual := _vim(features, head)) is not None:
        detectors.append(virtual)
    else:
        remarks.append(
            "ViM is left out: training features span half as many directions as they have, without any residual."
        )
    return [*detectors, _fdbd(features, head)], remarks


def _of_logits() -> tuple[Detector, ...]:
    from pytorch_ood.detector import GEN, EnergyBased, MaxLogit, MaxSoftmax  # seconds to import

    gen = GEN(None, gamma=_GEN_POWER, M=_GEN_CLASSES)
    return (
        Detector(
            "energy",
            "energy of the logits",
            "-log sum_k exp(logit_k), temperature 1 (Liu et al., 2020)",
            lambda features, logits: EnergyBased(None, t=1.0).predict_logits(logits),
        ),
        Detector(
            "max-probability",
            "maximum probability",
            "-max_k softmax(logits)_k (Hendrycks & Gimpel, 2017)",
            lambda features, logits: MaxSoftmax(None).predict_logits(logits),
        ),
        Detector(
            "max-logit",
            "maximum logit",
            "-max_k logit_k (Hendrycks et al., 2022)",
            lambda features, logits: MaxLogit(None).predict_logits(logits),
        ),
        Detector(
            "gen",
            "generalised entropy",
            f"mean of p^g (1 - p)^g over the {_GEN_CLASSES} likeliest classes, or all, g = {_GEN_POWER:g}; p is cut at "
            "1e-7 and 1 - 1e-7 (Liu et al., 2023)",
            lambda features, logits: gen.predict_logits(logits),
        ),
    )


def _of_neighbours(features: Tensor, labels: Tensor) -> Detector:
    from pytorch_ood.detector import KNN

    if len(features) < NEIGHBOURS:
        raise DataError(
            f"training images: {NEIGHBOURS} are needed for {NEIGHBOURS} neighbours, got {len(features)}; measure on a "
            "larger set"
        )
    neighbours = KNN(None, k=NEIGHBOURS, algorithm="brute").fit_features(features, labels)
    return Detector(
        "knn",
        f"distance to neighbour {NEIGHBOURS}",
        f"Euclidean distance of unit features to neighbour {NEIGHBOURS} among those of training (Sun et al., 2022)",
        lambda features, logits: neighbours.predict_features(features),
    )


def _of_distances(features: Tensor, labels: Tensor) -> tuple[Detector, ...]:
    from pytorch_ood.detector import RMD, Mahalanobis

    whiten = whitening(features, labels)
    fitted = whiten(features)
    nearest, relative = (kind(None).fit_features(fitted, labels) for kind in (Mahalanobis, RMD))
    note = f"in the {fitted.shape[1]} of {features.shape[1]} directions in which images of a class vary"
    return (
        Detector(
            "mahalanobis",
            "Mahalanobis distance",
            f"squared distance to the nearest class mean by the covariance within classes, {note} (Lee et al., 2018; "
            "the last layer, without noise)",
            lambda features, logits: nearest.predict_features(whiten(features)),
        ),
        Detector(
            "relative-mahalanobis",
            "relative Mahalanobis distance",
            f"the same, less the squared distance to the mean of all under their covariance, {note} (Ren et al., 2021)",
            lambda features, logits: relative.predict_features(whiten(features)),
        ),
    )


def _vim(features: Tensor, head: LinearHead) -> Detector | None:
    """Return the ViM detector (virtual-logit matching); None if features have no residual.

    Computed in float64: pytorch-ood computes the directions in float32, whose rounding can exceed the residual.
    """
    x, size = features.double(), features.shape[1]
    origin = -torch.linalg.pinv(head.weights.T, rtol=_ROUNDING) @ head.biases  # weights of all classes sum to 0
    centred = x - origin
    minor = torch.linalg.eigh(centred.T @ centred / len(x)).eigenvectors[:, : size - size // 2]
    residuals = (centred @ minor).norm(dim=1)  # (n,)
    if residuals.square().mean() <= _ROUNDING**2 * x.square().sum(dim=1).mean():
        return None
    alpha = head.logits(x).amax(dim=1).mean() / residuals.mean()
    return Detector(
        "vim",
        "ViM",
        f"a |residual of the features outside {size // 2} of {size} principal directions| - log sum_k exp(logit_k), "
        "a the mean of maximum logits over that of residuals (Wang et al., 2022)",
        lambda features, logits: (
            alpha * ((features.double() - origin) @ minor).norm(dim=1) - logits.double().logsumexp(dim=1)
        ),
    )


def _fdbd(features: Tensor, head: LinearHead) -> Detector:
    from pytorch_ood.detector import fDBD

    linear = nn.Linear(*head.weights.shape)
    linear.load_state_dict({"weight": head.weights.T, "bias": head.biases})
    boundaries = fDBD(None, linear).fit_features(features)
    return Detector(
        "fdbd",
        "distance to decision boundaries",
        "minus the mean distance to the classifier's boundaries around the likeliest class, over the distance to the "
        "mean training feature (Liu & Qin, 2024)",
        lambda features, logits: boundaries.predict_features(features),
    )


def whitening(features: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the whitening of features by their covariance within classes, from (m, D) to (m, R) float32.

    ``w(z) = L^-1/2 V^T (z - mean)`` with the covariance within classes ``V L V^T`` of training features. Mahalanobis
    distances are invariant to linear transformations, but float32 can invert covariances reliably only after whitening:
    if embeddings are close to a low-dimensional subspace, the inverse outside it is rounding error and distances become
    negative. Directions whose standard deviation is below 1e-5 of the features' root mean square norm are considered
    rounding error and dropped, as by a pseudo-inverse.
    """
    x, counts = features.double(), labels.bincount()  # (n, D), (K,)
    means = x.new_zeros(len(counts), x.shape[1]).index_add_(0, labels, x) / counts[:, None]  # (K, D)
    apart = x - means[labels]
    variances, directions = torch.linalg.eigh(apart.T @ apart / len(x))
    kept = variances > _ROUNDING**2 * x.square().sum(dim=1).mean()
    if not kept.any():
        raise DataError("features: those of all images of a class are the same; the encoder maps all images alike")
    mean, scaled = x.mean(dim=0), directions[:, kept] / variances[kept].sqrt()  # (D,), (D, R)
    return lambda z: ((z.double() - mean) @ scaled).float()


Alteration = Literal["inverted", "rotated"]
"""inverted: 255 minus the pixel; rotated: by 90 degrees, counterclockwise."""

RECALL = 0.95

FEWEST = 50
"""Number of images of each kind below which an AUROC has no interval."""

OVERLAPPING = 20
"""Number of images of each kind that overlap the other kind below which the interval is Wilson's."""


def altered_half(images: ImageSet, alteration: Alteration, is_altered: Tensor) -> tuple[ImageSet, ImageSet]:
    """Return the unaltered images and the altered ones; no image is in both."""
    half = images.rows(is_altered)
    pixels = 255 - half.images if alteration == "inverted" else half.images.rot90(1, dims=(2, 3)).contiguous()
    return images.rows(~is_altered), replace(half, name=alteration, images=pixels)


class Auroc(NamedTuple):
    """An area under the ROC curve with its structural components."""

    value: float  # probability that an outside image has a larger score than an inside image; ties count half
    # (m,) float64, for each inside image the fraction of outside images with a larger score; mean ``value``
    inside: Tensor
    # (n,) float64, for each outside image the fraction of inside images with a smaller score; mean ``value``
    outside: Tensor


def auroc(inside: Tensor, outside: Tensor) -> Auroc:
    """Return the area under the ROC curve and the contribution of each image.

    ``A = 1/(mn) sum_i sum_j psi(x_i, y_j)`` with inside scores x, outside scores y, and psi = 1 if x < y, 1/2 if
    x = y, 0 otherwise. Components: ``V_i = 1/n sum_j psi(x_i, y_j)`` and ``W_j = 1/m sum_i psi(x_i, y_j)``; the
    variance of A is ``var(V) / m + var(W) / n``.

    Source: DeLong, DeLong & Clarke-Pearson (1988), eq. 2, 4 and 5.
    """
    x, y = _checked(inside, outside)
    first, second = 1 - _share_below(y, x), _share_below(x, y)
    return Auroc(float(second.mean()), first, second)


def variances(area: Auroc) -> tuple[float, float]:
    """Return the parts of DeLong's variance, ``var(V) / m`` and ``var(W) / n``, with divisors m - 1 and n - 1."""
    first, second = (float(each.var()) / len(each) for each in (area.inside, area.outside))
    return first, second


def auroc_interval(area: Auroc) -> tuple[float, float] | None:
    """Return an interval of about 95 % of an AUROC A; None with fewer than `FEWEST` inside or outside images.

    ``expit(logit(A) +- h)`` with ``h = t_f sqrt(v + w) / (A (1 - A))``, where ``v = var(V) / m`` and ``w = var(W) / n``
    are the parts of DeLong's variance, and t_f is the two-sided quantile of Student's t at Welch's degrees of freedom,
    ``f = (v + w)^2 / (v^2 / (m - 1) + w^2 / (n - 1))``, rounded down. On the logit the interval is not symmetric around
    an A near 1, and it stays within (0, 1).

    An image overlaps the other kind if it is ranked wrong against at least one of it (right, if A is near 0). With
    fewer than `OVERLAPPING` of a kind, none where A is 1, v and w say little, and the interval is Wilson's of a share A
    of ``k = min(m, n)``: A is an average over all ways to form k disjoint pairs, so its variance is at most
    ``A (1 - A) / k`` whatever the scores. It is wide.

    Source: DeLong, DeLong & Clarke-Pearson (1988), variance; Pepe (2003), logit; Welch (1947); Wilson (1927).
    """
    inside, outside, value = area.inside, area.outside, area.value
    fewest = min(len(inside), len(outside))
    if fewest < FEWEST:
        return None
    overlapping = min(int(some.sum()) for each in (inside, outside) for some in (each < 1, each > 0))
    first, second = variances(area)
    variance = first + second
    if overlapping < OVERLAPPING or variance == 0:
        return wilson_interval(value, fewest, 1 - CHANCE)
    freedom = variance**2 / (first**2 / (len(inside) - 1) + second**2 / (len(outside) - 1))
    half = quantile(CHANCE, int(freedom)) * variance**0.5 / (value * (1 - value))
    centre = log(value / (1 - value))
    return 1 / (1 + exp(half - centre)), 1 / (1 + exp(-half - centre))


def false_positive_rate(inside: Tensor, outside: Tensor, *, recall: float = RECALL) -> float:
    """Return the fraction of inside images flagged at a given recall of outside images, by default FPR at 95 % recall.

    The threshold is the largest score t with ``1/n sum_j [y_j >= t] >= recall``; the result is
    ``1/m sum_i [x_i >= t]``.

    Source: OpenOOD v1.5 (arXiv:2306.09301), whose code has outside as the positive class. ODIN (arXiv:1706.02690) and
    Hendrycks & Gimpel (arXiv:1610.02136) have inside as the positive class: their metric is the fraction of outside
    images accepted when 95 % of the inside images are, which is ``false_positive_rate(-outside, -inside)``.
    """
    x, y = _checked(inside, outside)
    ranked = y.sort(descending=True).values
    too_few = (torch.arange(1, len(y) + 1, dtype=torch.float64) / len(y) < recall).sum()
    return float((x >= ranked[too_few]).double().mean())


def precision_recall_area(positive: Tensor, negative: Tensor) -> float:
    """Return the area under the precision-recall curve, by the trapezoidal rule between adjacent thresholds.

    ``sum_k (R_k - R_{k-1}) (P_k + P_{k-1}) / 2`` over all scores as thresholds, from the largest; R_0 = 0, P_0 = 1.
    AUPR-out is that of outside against inside; AUPR-in that of inside against outside with negated scores.

    Source: the code of OpenOOD v1.5 (arXiv:2306.09301). Average precision, which does not interpolate
    (``sum_k (R_k - R_{k-1}) P_k``), is a different metric, usually slightly smaller.
    """
    x, y = _checked(negative, positive)
    scores, order = torch.cat([y, x]).sort(descending=True)
    found = (order < len(y)).cumsum(0).double()  # positives among the k largest
    last = torch.cat([scores[1:] != scores[:-1], scores.new_ones(1, dtype=torch.bool)])  # last of equal scores
    count = torch.arange(1, len(scores) + 1, dtype=torch.float64)
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    recall, precision = torch.cat([zero, found[last] / len(y)]), torch.cat([one, (found / count)[last]])
    return float(torch.trapezoid(precision, recall))


def _share_below(scores: Tensor, values: Tensor) -> Tensor:
    """Return for each value the fraction of scores below it; equal scores count half."""
    ordered = scores.sort().values
    twice = torch.searchsorted(ordered, values) + torch.searchsorted(ordered, values, right=True)
    return twice.double() / (2 * len(scores))


def _checked(inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
    """Return both samples in float64 on the CPU; refuse empty samples and NaN, accept infinity."""
    x, y = inside.double().cpu(), outside.double().cpu()
    if len(x) == 0 or len(y) == 0:
        raise ValueError(f"scores: both classes need an image, got {len(x)} inside and {len(y)} outside")
    missing = int(x.isnan().sum() + y.isnan().sum())
    if missing:
        raise ValueError(f"scores: must be numbers, got NaN for {missing} of {len(x) + len(y)} images")
    return x, y
