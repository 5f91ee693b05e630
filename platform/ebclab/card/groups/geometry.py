"""What the features are like, without labels: how close two views lie, how evenly images spread."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from ebclab.card.measuring import GroupInfo, Measuring
from ebclab.card.results import Better, Findings, Number, Unit, mean_over_images
from ebclab.config.sections import ViewsConfig
from ebclab.data.holdout import limit
from ebclab.data.views import make_views
from ebclab.errors import DataError
from ebclab.evaluation.features import frozen
from energy_contrast.diagnostics import effective_rank, effective_sample_size, log_k_saturation, uniformity
from energy_contrast.losses import info_nce, pair_similarities

INFO = GroupInfo(
    name="geometry",
    title="Geometry of the features",
    headline="effective-rank",
    doc="alignment, uniformity, effective rank, effective sample size, InfoNCE against its bound; no labels",
    source="Wang & Isola (2020), section 4; Garrido et al. (2023), RankMe; Oord et al. (2018)",
    looks_at=("test",),
)

VIEWS = ViewsConfig(crop_scale_min=0.2, brightness=0.4, contrast=0.4, jitter_rate=0.8)
"""The same views for every encoder: those that it was trained on would make encoders incomparable."""

_VIEWS = "two fixed views: crops of 20 to 100 % of the area; brightness and contrast by up to 0.4, with a chance of 0.8"
_MOST_IMAGES = 2_048  # uniformity and InfoNCE look at all pairs
_TEMPERATURE = 0.1


def measure(measuring: Measuring) -> Findings:
    """Return label-free numbers about embeddings of test images, and of two views of them."""
    test = measuring.measured.test
    few = limit(test, _MOST_IMAGES)
    if len(few) < 2:
        raise DataError(f"{test.name}: two test images are needed to compare images, got {len(few)}")
    features = measuring.features(test)
    first, second = _pair(measuring)
    return Findings(
        (
            mean_over_images(
                "alignment",
                "alignment",
                (functional.normalize(first, dim=1) - functional.normalize(second, dim=1)).square().sum(dim=1),
                few.keys,
                protocol=f"squared distance of unit embeddings of {_VIEWS}",
                better="lower",
                unit="plain",
            ),
            _plain(
                "uniformity",
                "uniformity",
                (uniformity(first) + uniformity(second)) / 2,
                len(few),
                f"log of the mean Gaussian potential of all pairs, t = 2; mean of {_VIEWS}",
                better="lower",
            ),
            _plain(
                "effective-rank",
                "effective rank",
                effective_rank(features),
                len(test),
                f"exponential of the entropy of singular values of {len(test):,} x {features.shape[1]} test features",
                better="higher",
            ),
            *_contrasts(first, second, len(few)),
        )
    )


def _contrasts(first: Tensor, second: Tensor, count: int) -> tuple[Number, ...]:
    """Return how hard it is to tell an image's second view from those of all others."""
    positive, negatives = pair_similarities(first, second)
    loss = info_nce(positive, negatives, temperature=_TEMPERATURE)
    bound = math.log(negatives.shape[1] + 1)
    against = f"against {negatives.shape[1]:,} others at temperature {_TEMPERATURE:g}; {_VIEWS}"
    return (
        _plain(
            "infonce",
            f"InfoNCE, {negatives.shape[1]:,} negatives",
            loss,
            count,
            f"embeddings {against}; chance is its bound, {bound:.3f} nats",
            better="lower",
            unit="nats",
        ),
        _plain(
            "log-k-saturation",
            "log-K saturation",
            log_k_saturation(loss, num_negatives=negatives.shape[1]),
            count,
            f"1 - InfoNCE / {bound:.3f}: near 1, InfoNCE cannot say more; embeddings {against}",
            better="neither",
            unit="share",
        ),
        _plain(
            "ess",
            "effective sample size of the negatives",
            effective_sample_size(negatives / _TEMPERATURE).mean(),
            count,
            f"1 / (K sum of squared softmax weights), mean over anchors; embeddings {against}",
            better="neither",
            unit="share",
        ),
    )


def _pair(measuring: Measuring) -> tuple[Tensor, Tensor]:
    """Return embeddings (n, D) float64 of two views of test images, on the CPU."""
    subject, device = measuring.subject, measuring.device
    images = limit(measuring.measured.test, _MOST_IMAGES)
    encoder, size = subject.encoder.to(device), measuring.options.settings.batch_size
    parts = []
    with frozen(encoder), torch.no_grad():
        for start in range(0, len(images), size):
            pixels, keys = (each[start : start + size].to(device) for each in (images.images, images.keys))
            views = make_views(pixels, keys, VIEWS, subject.preprocessing, seed=0, epoch=0)  # (2, b, C, H, W)
            parts.append(encoder(views.flatten(0, 1)).double().cpu().unflatten(0, (2, -1)))
            measuring.on_progress(start + len(keys), len(images), "two views of test images")
    first, second = torch.cat(parts, dim=1)
    return first, second


def _plain(
    name: str, title: str, value: Tensor, count: int, protocol: str, *, better: Better, unit: Unit = "plain"
) -> Number:
    return Number(name, title, float(value), protocol, count, better, unit)
