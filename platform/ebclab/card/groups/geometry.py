"""Label-free metrics of the features: alignment of two views, uniformity, effective rank, InfoNCE."""

from __future__ import annotations

from ebclab.card.measuring import GroupInfo, Measuring
from ebclab.card.results import Better, Findings, Number, Unit, mean_over_images
from ebclab.data.holdout import limit
from ebclab.errors import DataError
from ebclab.evaluation.measures.geometry import MOST_IMAGES, TEMPERATURE, Geometry, geometry, two_views

INFO = GroupInfo(
    name="geometry",
    title="Geometry of the features",
    headline="effective-rank",
    doc="alignment, uniformity, effective rank, effective sample size, InfoNCE against its bound; no labels",
    source="Wang & Isola (2020), section 4; Garrido et al. (2023), RankMe; Oord et al. (2018)",
    looks_at=("test",),
)

_VIEWS = "two fixed views: crops of 20 to 100 % of the area; brightness and contrast by up to 0.4, with a chance of 0.8"


def measure(measuring: Measuring) -> Findings:
    """Return label-free metrics of the embeddings of test images, and of two views of them.

    Raises:
        DataError: There are fewer than two test images."""
    test, subject = measuring.measured.test, measuring.subject
    few = limit(test, MOST_IMAGES)
    if len(few) < 2:
        raise DataError(f"{test.name}: two test images are needed to compare images, got {len(few)}")
    features = measuring.features(test)
    first, second = two_views(
        subject.encoder.to(measuring.device),
        few,
        subject.preprocessing,
        batch_size=measuring.options.settings.batch_size,
        device=measuring.device,
        on_progress=measuring.on_progress,
    )
    found = geometry(first, second, features)
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


def _plain(
    name: str, title: str, value: float, count: int, protocol: str, *, better: Better, unit: Unit = "plain"
) -> Number:
    return Number(name, title, value, protocol, count, better, unit)
