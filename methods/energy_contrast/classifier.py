"""Methods that say which class an image is of.

Shapes: B images, C channels, H x W pixels, K classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch.nn.functional as F
from torch import Tensor


class Classifier(ABC):
    """What a method that classifies images offers beyond ``Method``.

    Attributes:
        num_classes: K.
    """

    num_classes: int

    @abstractmethod
    def classify(self, images: Tensor) -> Tensor:
        """Return the logits (B, K) of images (B, C, H, W), float32 or wider; their softmax is p(y|x)."""


def require_classes(method: str, num_classes: int) -> None:
    """Refuse fewer than two classes.

    Raises:
        ValueError: If there are fewer than two.

    >>> require_classes("supervised", 2)
    """
    if num_classes < 2:
        raise ValueError(f"num_classes: {method} tells classes apart, got {num_classes}; use images of two at least")


def measure_classes(
    logits: Tensor, labels: Tensor, *, label_smoothing: float = 0.0
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the cross-entropy of logits with the labels, and its metrics.

    ``L = mean_i -sum_k q_ik log softmax(f_i)_k`` with ``q_ik = (1 - epsilon) [k = y_i] + epsilon / K``.

    Args:
        logits: (B, K) f.
        labels: (B,) y, int64 in [0, K).
        label_smoothing: epsilon in [0, 1).

    Returns:
        () L in nats, and ``cross_entropy`` (L detached) and ``accuracy`` (share whose largest logit is right).

    >>> import torch
    >>> loss, metrics = measure_classes(torch.zeros(2, 4), torch.tensor([0, 1]))
    >>> loss.exp(), metrics["accuracy"]
    (tensor(4.), tensor(0.5000))

    Source: label smoothing: Szegedy et al. 2016 (arXiv:1512.00567), section 7.
    """
    loss = F.cross_entropy(logits, labels, label_smoothing=label_smoothing)
    accuracy = (logits.detach().argmax(dim=1) == labels).to(logits.dtype).mean()
    return loss, {"cross_entropy": loss.detach(), "accuracy": accuracy}
