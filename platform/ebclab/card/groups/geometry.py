"""Label-free metrics of the features: alignment of two views, uniformity, effective rank, InfoNCE."""

from __future__ import annotations

import torch
from torch import Tensor

from ebclab.card.measuring import GroupInfo, Measuring
from ebclab.card.results import Better, Findings, Number, Unit, mean_over_images
from ebclab.data.holdout import limit
from ebclab.errors import DataError
from ebclab.evaluation.measures.geometry import MOST_IMAGES, TEMPERATURE, Geometry, geometry, two_views
from ebclab.evaluation.measures.information import MOST_IN_POOL, TEMPERATURES, view_information

INFO = GroupInfo(
    name="geometry",
    title="Geometry of the features",
    headline="effective-rank",
    doc="alignment, uniformity, effective rank, effective sample size, InfoNCE and mutual information; no labels",
    source="Wang & Isola (2020), section 4; Garrido et al. (2023), RankMe; Oord et al. (2018); FlatNCE, section 4",
    looks_at=("test",),
)

_VIEWS = "two fixed views: crops of 20 to 100 % of the area; brightness and contrast by up to 0.4, with a chance of 0.8"


def measure(measuring: Measuring) -> Findings:
    """Return label-free metrics of the embeddings of test images, and of two views of them."""
    test, subject = measuring.measured.test, measuring.subject
    pool = limit(test, MOST_IN_POOL)
    is_few = torch.isin(pool.keys, limit(test, MOST_IMAGES).keys)
    few = pool.rows(is_few)
    if len(few) < 2:
        raise DataError(f"{test.name}: two test images are needed to compare images, got {len(few)}")
    features = measuring.features(test)
    first, second = two_views(
        subject.encoder.to(measuring.device),
        pool,
        subject.preprocessing,
        batch_size=measuring.options.settings.batch_size,
        device=measuring.device,
        on_progress=measuring.on_progress,
    )
    found = geometry(first[is_few], second[is_few], features)
    return Findings(
        (
            mean_over_images(
                "alignment",
                "alignment",
                found.distances,
                few.keys,
                protocol=f"squared distance of unit embeddings of {_VIEWS}",
                better="lower",
                unit="plain",
            ),
            _plain(
                "uniformity",
                "uniformity",
                found.uniformity,
                len(few),
                f"log of the mean Gaussian potential of all pairs, t = 2; mean of {_VIEWS}",
                better="lower",
            ),
            _plain(
                "effective-rank",
                "effective rank",
                found.effective_rank,
                len(test),
                f"exponential of the entropy of singular values of {len(test):,} x {features.shape[1]} test features",
                better="higher",
            ),
            *_contrasts(found, len(few)),
            _information(first, second, measuring.device),
        )
    )


def _contrasts(found: Geometry, count: int) -> tuple[Number, ...]:
    """Return the metrics of the task to identify an image's second view among those of all others."""
    against = f"against {found.num_negatives:,} others at temperature {TEMPERATURE:g}; {_VIEWS}"
    return (
        _plain(
            "infonce",
            f"InfoNCE, {found.num_negatives:,} negatives",
            found.info_nce,
            count,
            f"embeddings {against}; chance is its bound, {found.bound:.3f} nats",
            better="lower",
            unit="nats",
        ),
        _plain(
            "log-k-saturation",
            "log-K saturation",
            found.log_k_saturation,
            count,
            f"1 - InfoNCE / {found.bound:.3f}: near 1, InfoNCE cannot say more; embeddings {against}",
            better="neither",
            unit="share",
        ),
        _plain(
            "ess",
            "effective sample size of the negatives",
            found.effective_sample_size,
            count,
            f"1 / (K sum of squared softmax weights), mean over anchors; embeddings {against}",
            better="neither",
            unit="share",
        ),
    )


def _information(first: Tensor, second: Tensor, device: torch.device) -> Number:
    """Return the mutual information between the two views of all images."""
    found = view_information(first, second, device)
    count = len(first)
    return _plain(
        "information",
        "mutual information between views",
        found.nats,
        count,
        f"InfoNCE of embeddings, each image among all {count:,}, at temperature {found.temperature:g}, of "
        f"{TEMPERATURES[0]:g} to {TEMPERATURES[-1]:g} the one with the largest estimate; a lower bound in expectation, "
        f"at most log {count:,} = {found.bound:.3f} nats; {_VIEWS}",
        better="neither",
        unit="nats",
    )


def _plain(
    name: str, title: str, value: float, count: int, protocol: str, *, better: Better, unit: Unit = "plain"
) -> Number:
    return Number(name, title, value, protocol, count, better, unit)
