"""Input of monitors: an encoder in training, held-out images, and cached features and classifiers.

Shapes: n images of the bank, m held-out images, D features, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from ebclab.config.sections import EvaluationConfig, ViewsConfig
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.evaluation.evaluate import PROBES, FeatureSplit
from ebclab.evaluation.features import Encoder, compute_features
from ebclab.evaluation.intervals import Score
from ebclab.evaluation.linear_head import LinearHead, fit_head
from ebclab.evaluation.progress import silent
from ebclab.evaluation.protocols import LBFGS


@dataclass(frozen=True)
class Monitored:
    """An encoder with held-out images and a bank; features and classifiers are computed once, when first used."""

    encoder: Encoder  # maps preprocessed images to embeddings; must be on ``device``
    bank: ImageSet  # training images, at most ``evaluation.knn_bank_limit``
    holdout: ImageSet
    preprocessing: Preprocessing
    config: EvaluationConfig
    device: torch.device | str
    views: ViewsConfig = field(default_factory=ViewsConfig)  # that are trained on
    project: Encoder | None = None  # maps preprocessed images to what the loss compares; None means the embeddings

    @property
    def is_labelled(self) -> bool:
        """Whether every image has a label."""
        return not bool((self.bank.labels < 0).any() or (self.holdout.labels < 0).any())

    @property
    def num_classes(self) -> int:
        """K: the largest label of both sets, plus 1."""
        return int(max(self.bank.labels.max(), self.holdout.labels.max())) + 1

    @cached_property
    def held(self) -> Tensor:
        """(m, D) features of the held-out images."""
        return self.embed(self.holdout)

    @cached_property
    def known(self) -> Tensor:
        """(n, D) features of the bank."""
        return self.embed(self.bank)

    @cached_property
    def _split(self) -> FeatureSplit:
        known, held = self.known, self.held
        labels = [part.labels.to(known.device) for part in (self.bank, self.holdout)]
        return FeatureSplit(known, labels[0], held, labels[1], self.holdout.keys, self.num_classes)

    def score(self, probe: str) -> Score:
        """Return the score of a probe on the held-out images, by seed 0."""
        return PROBES[probe](self._split, replace(self.config, linear_seeds=1), 0, silent)

    @cached_property
    def head(self) -> LinearHead:
        """The linear classifier with the penalty ``evaluation.linear_l2``, fitted on the bank."""
        return fit_head(LBFGS, self.known.cpu(), self.bank.labels, self.num_classes, self.config.linear_l2)

    def embed(self, images: ImageSet) -> Tensor:
        """Return embeddings (n, D) of images, on ``device``."""
        return compute_features(
            self.encoder, images.images, self.preprocessing, batch_size=self.config.batch_size, device=self.device
        ).to(self.device)
