"""Label-free metrics of embeddings: alignment of two views, uniformity, effective rank, InfoNCE, mutual information.

Mutual information between two views is estimated by InfoNCE with a large pool of negatives (FlatNCE, footnote 6):

    I = log K - mean_i (log sum_j exp(s_ij / tau) - s_ii / tau)

over the second views j of all K images, image i's own among them, so that I is at most log K. It is a lower bound for
any tau, in expectation; the largest over ``TEMPERATURES`` is returned.

Shapes: n images, D features; K images of a pool.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ebclab.config.sections import ViewsConfig
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views.pipeline import make_views
from ebclab.evaluation.features import Encoder, frozen
from ebclab.evaluation.progress import OnProgress, silent
from energy_contrast.diagnostics import effective_rank, effective_sample_size, log_k_saturation, uniformity
from energy_contrast.losses import info_nce, pair_similarities

VIEWS = ViewsConfig(crop_scale_min=0.2, brightness=0.4, contrast=0.4, jitter_rate=0.8)
"""The same views for every encoder: with the views of their own training, encoders would not be comparable."""

VIEWS_IN_WORDS = (
    "two fixed views: crops of 20 to 100 % of the area; brightness and contrast by up to 0.4, with a chance of 0.8"
)

MOST_IMAGES = 2_048
"""Maximum number of images for pairs of views: uniformity and InfoNCE are computed over all pairs of images."""

TEMPERATURE = 0.1

TEMPERATURES = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
"""Values of tau that are tried."""

MOST_IN_POOL = 16_384
"""Maximum number of images: every first view is compared with every second one."""

_BLOCK = 1_024  # first views at a time


@dataclass(frozen=True)
class Geometry:
    """Label-free metrics of embeddings."""

    distances: Tensor  # (n,) float64 squared distance of the unit embeddings of two views; their mean is the alignment
    uniformity: float  # log of the mean Gaussian potential of all pairs, t = 2; mean of both views
    effective_rank: float  # exponential of the entropy of the singular values of all features
    info_nce: float  # nats
    num_negatives: int  # K, per anchor
    log_k_saturation: float  # 1 - InfoNCE / log(K + 1)
    effective_sample_size: float  # 1 / (K sum of squared softmax weights), mean over anchors

    @property
    def bound(self) -> float:
        """InfoNCE of equal similarities, log(K + 1), in nats."""
        return math.log(self.num_negatives + 1)


def geometry(first: Tensor, second: Tensor, features: Tensor) -> Geometry:
    """Return the metrics of Wang & Isola (2020), section 4; RankMe (2023); Oord et al. (2018); FlatNCE, eq. 10.

    ``first`` and ``second`` are (n, D) embeddings of two views of each image, ``features`` (m, D) those of all images
    without augmentation.
    """
    positive, negatives = pair_similarities(first, second)
    loss = info_nce(positive, negatives, temperature=TEMPERATURE)
    apart = functional.normalize(first, dim=1) - functional.normalize(second, dim=1)
    return Geometry(
        distances=apart.square().sum(dim=1),
        uniformity=float((uniformity(first) + uniformity(second)) / 2),
        effective_rank=float(effective_rank(features)),
        info_nce=float(loss),
        num_negatives=negatives.shape[1],
        log_k_saturation=float(log_k_saturation(loss, num_negatives=negatives.shape[1])),
        effective_sample_size=float(effective_sample_size(negatives / TEMPERATURE).mean()),
    )


def two_views(
    encoder: Encoder,
    images: ImageSet,
    preprocessing: Preprocessing,
    *,
    batch_size: int,
    device: torch.device | str,
    recipe: ViewsConfig | None = None,
    on_progress: OnProgress = silent,
) -> tuple[Tensor, Tensor]:
    """Return embeddings (n, D) float64 of two views of images, on the CPU, computed with the encoder frozen.

    Random parameters of the views depend only on the keys; without a recipe they are ``VIEWS``. A pass has
    ``batch_size`` images, of two views each.
    """
    parts = []
    with frozen(encoder), torch.no_grad():
        for start in range(0, len(images), batch_size):
            pixels, keys = (each[start : start + batch_size].to(device) for each in (images.images, images.keys))
            views = make_views(pixels, keys, recipe or VIEWS, preprocessing, seed=0, epoch=0)  # (2, b, C, H, W)
            parts.append(encoder(views.flatten(0, 1)).double().cpu().unflatten(0, (2, -1)))
            on_progress(start + len(keys), len(images), f"two views of images of {images.name}")
    first, second = torch.cat(parts, dim=1)
    return first, second


class Information(NamedTuple):
    """An estimate of mutual information."""

    nats: float
    temperature: float  # the tau that gives the estimate
    bound: float  # log K, which it cannot exceed


def view_information(first: Tensor, second: Tensor, device: torch.device | str) -> Information:
    """Return the estimate for cosines of two views' vectors (K, D), computed in float32 on ``device``."""
    one, other = (functional.normalize(view, dim=1).float().to(device) for view in (first, second))
    return pool_information(one, other)


def pool_information(first: Tensor, second: Tensor, temperatures: tuple[float, ...] = TEMPERATURES) -> Information:
    """Return the largest estimate over ``temperatures``; s_ij is the inner product of first[i] and second[j]."""
    log_odds = torch.zeros(len(temperatures), dtype=torch.float64)
    for rows in torch.split(torch.arange(len(first)), _BLOCK):
        scores = first[rows] @ second.T  # (B, K)
        own = (first[rows] * second[rows]).sum(dim=1)  # (B,)
        for place, temperature in enumerate(temperatures):
            lost = torch.logsumexp(scores / temperature, dim=1) - own / temperature
            log_odds[place] += lost.sum(dtype=torch.float64).cpu()
    bound = math.log(len(first))
    found = bound - log_odds / len(first)
    best = int(found.argmax())
    return Information(float(found[best]), temperatures[best], bound)
