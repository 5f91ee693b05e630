"""DCL: SimCLR whose positive is left out of its own denominator, so that small batches learn as fast as large ones."""

from __future__ import annotations

from torch import Tensor

from energy_contrast.contrastive.settings import DclConfig
from energy_contrast.contrastive.simclr import ControlledPairMethod
from energy_contrast.losses import decoupled, von_mises_fisher_weights
from energy_contrast.method import StepOutput


class Dcl(ControlledPairMethod):
    """DCL.

    ``L = 1/2B sum_i (-w_i s(i, i+) / tau + log sum_k exp(s(i, k) / tau))``, i over both views, k over the 2B - 2 views
    of other images, s the cosine of projections; w_i is 1, or a weight of DCLW. Its value may be negative: read
    ``info_nce``.

    Args:
        config: Settings of SimCLR, weights of positives.
        encoder: Maps images to embeddings, with ``embedding_size``.

    Metrics: those of SimCLR, and ``decoupled``, the loss. The weights of positives use ``weighting_sigma``, which
    ``ess_target`` does not change.

    Source: DCL (arXiv:2110.06848), section 3, the losses L_DC and L_DCW.
    Departs from the paper: the loss is the mean over the 2B anchors, not the sum. Weights are constants, as in lightly;
    another public implementation differentiates through them. The default temperature is SimCLR's, so that the two
    differ in the loss alone (public implementations have 0.1).
    """

    Config = DclConfig
    config: DclConfig
    paper = "Yeh, Hong, Hsu, Liu, Chen & LeCun, Decoupled Contrastive Learning, ECCV 2022, arXiv:2110.06848"

    def contrast(self, projection: Tensor, positive: Tensor, negatives: Tensor) -> StepOutput:
        """Compute loss and metrics from similarities with positives (2B,) and negatives (2B, 2B - 2)."""
        weights, temperature = None, self.temperature
        if self.config.weighting == "von-mises-fisher":
            weights = von_mises_fisher_weights(positive, sigma=self.config.weighting_sigma)
        loss = decoupled(positive, negatives, temperature=temperature, weights=weights)
        metrics = self.measure_simclr(projection, positive, negatives) | self.watch_negatives(negatives)
        return StepOutput(loss, metrics | {"decoupled": loss.detach()})
