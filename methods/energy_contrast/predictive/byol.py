"""BYOL: a view predicts what a slowly moving copy of the network makes of the other view; no negatives.

Shapes: B images, C channels, H x W pixels, D embedding size, P projection size.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from energy_contrast.method import Batch, Method, Passes, Progress, StepOutput
from energy_contrast.networks.drawn import DrawnEncoder
from energy_contrast.networks.heads import ProjectionHead, at_least_float32
from energy_contrast.networks.slow_copy import follow, slow_copy
from energy_contrast.parallel import gather
from energy_contrast.predictive.prediction import measure_pairs, predict_across
from energy_contrast.predictive.settings import ByolConfig


class Byol(Method):
    """BYOL.

    ``L = |q(z_1) - z'_2|^2 + |q(z_2) - z'_1|^2`` of unit vectors, averaged over images (with ``directions: mean`` half
    of it), with projections z = g(f(x)) of the online network, predictions q(z), and projections z' = g'(f'(x)) of the
    target network, without gradient. After step k of K, counted from 0, ``theta' <- m theta' + (1 - m) theta`` for the
    weights theta' of f' and g', with ``m = 1 - (1 - tau_base) (cos(pi k / K) + 1) / 2``.

    Args:
        config: Settings.
        encoder: f, with ``embedding_size``.

    Metrics: ``prediction_similarity``, the mean cosine of predictions and targets, and ``info_nce`` of the online
    projections at temperature 0.2; while ``diagnosing`` also what ``diagnose`` returns, of these.

    Raises:
        ValueError: If ``target_start`` is own and the encoder is not a ``ResNet``.

    Source: BYOL (arXiv:2006.07733), algorithm 1, eq. 2 and 3, section 3.2; ``directions`` mean, ``target_start`` own
    and ``momentum_schedule`` constant are the baseline in the code released with EBCLR.
    Departs from the paper: the target network's running statistics are its own, not averaged with the weights.
    """

    Config = ByolConfig
    has_negatives = False
    not_in_chunks = ""
    config: ByolConfig
    paper = (
        "Grill, Strub, Altché, Tallec, Richemond et al., Bootstrap Your Own Latent: A New Approach to Self-Supervised "
        "Learning, NeurIPS 2020, arXiv:2006.07733"
    )

    def __init__(self, config: ByolConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        hidden, size = config.projection_hidden_size, config.projection_size
        embedding_size = cast(int, encoder.embedding_size)
        self.head = ProjectionHead(embedding_size, hidden, size, batch_norm=True)
        self.predictor = ProjectionHead(size, hidden, size, batch_norm=True)
        self.target_encoder, self.target_head = slow_copy(self.encoder), slow_copy(self.head)
        if config.target_start == "own":
            if not isinstance(self.target_encoder, DrawnEncoder):
                raise ValueError(
                    f"target_start: own needs an encoder of energy_contrast, got {type(encoder).__name__}; "
                    "use one of ours, or copy"
                )
            self.target_encoder.reset_parameters()
            self.target_head = slow_copy(ProjectionHead(embedding_size, hidden, size, batch_norm=True))

    @classmethod
    def passes(cls, config: ByolConfig) -> Passes:
        """Return both views through both networks, with gradient through one."""
        return Passes(2 * cls.num_views, cls.num_views)

    def compile_parts(self, **options: Any) -> None:
        """Compile both encoders."""
        super().compile_parts(**options)
        self.target_encoder.compile(**options)

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        """Compute the loss of one step; draws nothing from ``generator``."""
        # 1. z = g(f(x)), q(z), z' = g'(f'(x)): each view in a pass of its own, as batch norm is meant to see it
        passes = zip(*map(self._predict, batch.views), strict=True)
        # 2. those of all ranks: from here on, B counts the images of the global batch
        projection, prediction, target = (gather(torch.stack(both), dim=1) for both in passes)  # (2, B, P) each
        with torch.autocast(projection.device.type, enabled=False):
            # 3. |q - z'|^2 = 2 - 2 <q, z'> of unit vectors, in both directions
            direction = predict_across(prediction, target)
            mean = 2 + 2 * direction
            loss = mean if self.config.directions == "mean" else 2 * mean
            metrics = {"prediction_similarity": -direction.detach()}
            return StepOutput(loss, metrics | measure_pairs(self, projection))

    def not_recorded(self) -> str:
        """Refuse a momentum that rises from step to step."""
        if self.config.momentum_schedule == "cosine":
            return "momentum_schedule: cosine changes it every step; constant can be recorded"
        return super().not_recorded()

    def after_step(self, progress: Progress) -> None:
        """Move the target network towards the online network."""
        momentum = self.config.momentum
        if self.config.momentum_schedule == "cosine":
            momentum = rising_momentum(momentum, step=progress.step - 1, num_steps=progress.num_steps)
        follow(self.target_encoder, self.encoder, momentum=momentum)
        follow(self.target_head, self.head, momentum=momentum)

    def _predict(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return projections, predictions and targets (b, P) of a view of this rank's images."""
        projection = at_least_float32(self.head(self.encode(images)))
        prediction = at_least_float32(self.predictor(projection))
        with torch.no_grad():
            return projection, prediction, at_least_float32(self.target_head(self.encode(images, self.target_encoder)))


def rising_momentum(base: float, *, step: int, num_steps: int) -> float:
    """Return the share of itself that the target network keeps after a step.

    ``1 - (1 - tau_base) (cos(pi k / K) + 1) / 2``

    Args:
        base: tau_base, the share at the first step.
        step: k, from 0.
        num_steps: K, steps of the whole run.

    >>> [rising_momentum(0.9, step=step, num_steps=2) for step in range(3)]
    [0.9, 0.95, 1.0]

    Source: BYOL (arXiv:2006.07733), section 3.2.
    """
    return 1 - (1 - base) * (math.cos(math.pi * step / num_steps) + 1) / 2
