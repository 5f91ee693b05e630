"""Out-of-distribution detectors based on features and on a linear classifier of them.

They are those of pytorch-ood, with ViM in float64 and the settings of OpenOOD. Larger scores mean out-of-distribution.

Shapes: n fitted rows, m scored rows, D features, K classes, R directions in which features vary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ebclab.errors import DataError
from ebclab.evaluation.linear_head import LinearHead

NEIGHBOURS = 50
_GEN_POWER = 0.1
_GEN_CLASSES = 100
_ROUNDING = 1e-5  # relative to a feature's norm; rounding errors of a float32 network are about a tenth of it

Score = Callable[[Tensor, Tensor], Tensor]
"""Maps features (m, D) float32 and logits (m, K) float64 to scores (m,), larger for out-of-distribution images."""


@dataclass(frozen=True)
class Detector:
    """An out-of-distribution detector, fitted if it has parameters."""

    name: str  # letters, digits and hyphens
    title: str  # name in tables
    protocol: str  # its equation and its settings
    score: Score


def fit_detectors(features: Tensor, labels: Tensor, head: LinearHead) -> tuple[list[Detector], list[str]]:
    """Return all detectors, fitted on features (n, D) and labels (n,) that the linear classifier was fitted on, too.

    Beside them a remark for each detector that could not be fitted.
    """
    detectors = [*_of_logits(), *_of_neighbours(features, labels), *_of_distances(features, labels)]
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


def _of_neighbours(features: Tensor, labels: Tensor) -> tuple[Detector, ...]:
    from pytorch_ood.detector import KNN

    if len(features) < NEIGHBOURS:
        raise DataError(
            f"training images: {NEIGHBOURS} are needed for {NEIGHBOURS} neighbours, got {len(features)}; measure on a "
            "larger set"
        )
    neighbours = KNN(None, k=NEIGHBOURS, algorithm="brute").fit_features(features, labels)
    return (
        Detector(
            "knn",
            f"distance to neighbour {NEIGHBOURS}",
            f"Euclidean distance of unit features to neighbour {NEIGHBOURS} among those of training (Sun et al., 2022)",
            lambda features, logits: neighbours.predict_features(features),
        ),
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
