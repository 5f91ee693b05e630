"""SimSiam: a view predicts the other view's projection, behind a stop-gradient; no negatives, no average of weights.

Shapes: B images, C channels, H x W pixels, D embedding size, P projection size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from energy_contrast.method import Batch, Method, StepOutput
from energy_contrast.networks.heads import ProjectionHead, at_least_float32, new_head
from energy_contrast.parallel import gather
from energy_contrast.predictive.prediction import measure_pairs, predict_across
from energy_contrast.predictive.settings import SimsiamConfig


class Simsiam(Method):
    """SimSiam.

    ``L = 1/2 D(p_1, stopgrad(z_2)) + 1/2 D(p_2, stopgrad(z_1))`` with projections ``z = g(f(x))``, predictions
    ``p = h(z)`` and ``D(p, z) = -<p, z> / (|p| |z|)``, averaged over images.

    Args:
        config: Shapes of the projection head and of the predictor, and the predictor's learning rate.
        encoder: f, with ``embedding_size``.

    Metrics: ``prediction_similarity``, the mean cosine of predictions and targets (minus the loss), and ``info_nce`` of
    the projections at temperature 0.2; while ``diagnosing`` also what ``diagnose`` returns, of the projections.

    Source: SimSiam (arXiv:2011.10566), algorithm 1, eq. 1 to 4, section 3; ``prediction_rate``: section 4.2.
    Departs from the paper: batch norm uses the whole global batch of a view, not what each GPU holds; the predictor's
    learning rate follows by default the schedule of all weights, while the released code keeps it constant. With a
    warm-up, which the paper does not have, a constant rate is that of its end from the first step on.
    """

    Config = SimsiamConfig
    has_negatives = False
    not_in_chunks = ""
    config: SimsiamConfig
    paper = "Chen & He, Exploring Simple Siamese Representation Learning, CVPR 2021, arXiv:2011.10566"

    def __init__(self, config: SimsiamConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        size = config.projection_size
        self.head = new_head(
            config,
            encoder,
            hidden_size=size,
            num_layers=config.projection_num_layers,
            batch_norm=True,
            output_batch_norm=True,
            output_scale=config.projection_scale,
        )
        self.predictor = ProjectionHead(size, config.prediction_hidden_size, size, batch_norm=True)

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        """Compute the loss of one step; draws nothing from ``generator``."""
        # 1. z = g(f(x)), p = h(z): each view in a pass of its own, so that batch norm sees one view at a time
        projection, prediction = (torch.stack(both) for both in zip(*map(self._predict, batch.views), strict=True))
        # 2. those of all ranks: from here on, B counts the images of the global batch
        projection, prediction = gather(projection, dim=1), gather(prediction, dim=1)  # (2, B, P) each
        with torch.autocast(projection.device.type, enabled=False):
            # 3. D(p_1, stopgrad(z_2)) and D(p_2, stopgrad(z_1))
            loss = predict_across(prediction, projection)
            metrics = {"prediction_similarity": -loss.detach()}
            return StepOutput(loss, metrics | measure_pairs(self, projection))

    def at_constant_rate(self) -> list[nn.Parameter]:
        """Return the predictor's weights, if their rate is constant."""
        return list(self.predictor.parameters()) if self.config.prediction_rate == "constant" else []

    def _predict(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return projections and predictions (b, P) of a view of this rank's images."""
        projection = at_least_float32(self.head(self.encode(images)))
        return projection, at_least_float32(self.predictor(projection))
