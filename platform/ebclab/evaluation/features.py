"""Embeddings of images, computed by a frozen encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import DataError, DivergedError
from ebclab.evaluation.progress import OnProgress, silent

Encoder = nn.Module | Callable[[Tensor], Tensor]
"""Maps preprocessed images (B, C, H, W) to embeddings (B, D): a module, or a bound method such as ``method.embed``."""

MOST_CLASSES = 1 << 20
"""Upper bound of class labels; a larger label is an identifier and not a class index."""


def compute_features(
    encoder: Encoder,
    images: Tensor,
    preprocessing: Preprocessing,
    *,
    batch_size: int,
    device: torch.device | str,
    on_progress: OnProgress = silent,
    what: str = "features",
) -> Tensor:
    """Return the embeddings (n, D), float32 on the CPU, of images (n, C, H, W) uint8; in eval mode, without gradients.

    Batch norm uses its running statistics without updating them; afterwards the training mode of every submodule is
    restored. A plain function that closes over a module must put that module in eval mode itself.
    """
    check_images(images, preprocessing)
    parts = []
    with frozen(encoder), torch.no_grad():
        for start in range(0, len(images), batch_size):
            batch = images[start : start + batch_size].to(device)
            parts.append(encoder(preprocessing(batch)).float().cpu())  # (B, D)
            on_progress(start + len(batch), len(images), what)
    features = torch.cat(parts)  # (n, D)
    finite = features.isfinite().all(dim=1)
    if not finite.all():
        bad = int((~finite).sum())
        raise DivergedError(
            f"{what}: the encoder must give finite numbers, got NaN or infinity for {bad:,} of {len(images):,} images; "
            "its training has diverged, evaluate an earlier checkpoint"
        )
    return features


def placed(encoder: nn.Module, device: torch.device | str) -> nn.Module:
    """Put an encoder on a device, its convolutions in NHWC memory order, in which they give features sooner."""
    return encoder.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


@contextmanager
def frozen(encoder: Encoder) -> Iterator[None]:
    """Put the module of ``encoder`` in eval mode within the block; on exit, restore the mode of each submodule."""
    module = encoder if isinstance(encoder, nn.Module) else getattr(encoder, "__self__", None)
    if not isinstance(module, nn.Module):
        yield
        return
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def require_labels(images: ImageSet) -> None:
    """Refuse an image set that no probe can use."""
    if len(images) == 0:
        raise DataError(f"{images.name}: at least one image is needed to measure an encoder, got 0")
    if images.marks is not None:
        raise DataError(several_labels(images))
    missing = int((images.labels < 0).sum())
    if missing:
        raise DataError(
            f"{images.name}: kNN and linear probes need a label for every image, "
            f"got {missing:,} of {len(images):,} without; choose a labelled dataset"
        )
    if (highest := int(images.labels.max())) >= MOST_CLASSES:
        raise DataError(
            f"{images.name}: labels must be numbers of classes, below {MOST_CLASSES:,}, got "
            f"{highest}; number the classes from 0, or name another column by data.label_column"
        )


def num_classes(*parts: ImageSet) -> int:
    """Return K, by the labels and the class names of all parts."""
    return max(max(int(part.labels.max()) + 1, len(part.class_names)) for part in parts)


def several_labels(images: ImageSet) -> str:
    """Return the error message for multi-label images where a single label is required."""
    return (
        f"{images.name}: its images may have several labels each, which only the groups transfer and fine-tuning of a "
        "card measure; give it to `ebclab evaluate` as a further --dataset"
    )


def check_images(images: Tensor, preprocessing: Preprocessing) -> None:
    """Refuse images (n, C, H, W) that an encoder with this preprocessing cannot process."""
    if len(images) == 0:
        raise DataError("images: at least one is needed to measure an encoder, got 0")
    channels = len(preprocessing.mean)
    if images.shape[1] != channels:
        raise DataError(
            f"images: the encoder expects {channels} channel(s), got {images.shape[1]}; "
            "evaluate it on a dataset with as many channels as it was trained on"
        )
