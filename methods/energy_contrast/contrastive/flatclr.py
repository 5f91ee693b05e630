"""FlatCLR: SimCLR with the FlatNCE loss and, optionally, a temperature controlled by the effective sample size."""

from __future__ import annotations

from torch import Tensor, nn

from energy_contrast.contrastive.settings import FlatclrConfig
from energy_contrast.contrastive.simclr import ControlledPairMethod
from energy_contrast.ess_control import EssController
from energy_contrast.losses import flat_nce
from energy_contrast.method import StepOutput


class Flatclr(ControlledPairMethod):
    """FlatCLR.

    ``L = mean_i xi_i / detach(xi_i)`` with ``xi_i = sum_j exp((s_ij - s_i+) / tau)`` over the 2B - 2 negatives of
    each of the 2B anchors. Its value is exactly 1: read ``info_nce``.

    Args:
        config: Settings of SimCLR, variant of the loss, control of the temperature.
        encoder: Maps images to embeddings, with ``embedding_size``.

    Metrics: those of SimCLR at the present temperature; while the temperature is controlled also ``temperature``,
    ``ess`` (of every step) and ``ess_target``.

    Source: FlatNCE (arXiv:2107.01152), eq. 6 and 7, definition 3.6, algorithms 1 and S1.
    Departs from the paper: see ``flat_nce`` and ``EssController``; the default temperature is SimCLR's, so that the
    two differ in the loss alone (the released code uses 0.1). As in the released code, both views serve as anchors
    and as negatives; eq. 6 has one anchor and its K negatives.
    """

    Config = FlatclrConfig
    config: FlatclrConfig
    paper = (
        "Chen, Gan, Li, Guo, Chen, Gao, Chung, Xu, Zeng, Lu, Li, Carin & Tao, Simpler, Faster, Stronger: Breaking The "
        "log-K Curse On Contrastive Learners With FlatNCE, 2021, arXiv:2107.01152"
    )

    def __init__(self, config: FlatclrConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        # also without a target, so that every checkpoint of this method has one
        self.controller = EssController(
            temperature=config.temperature, target=config.ess_target, gain=config.ess_gain, rule=config.ess_rule
        )

    def contrast(self, projection: Tensor, positive: Tensor, negatives: Tensor) -> StepOutput:
        """Compute loss and metrics from similarities with positives (2B,) and negatives (2B, 2B - 2)."""
        loss = flat_nce(
            positive,
            negatives,
            temperature=self.temperature,
            include_positive=self.config.include_positive,
            exponent=self.config.hoelder_exponent,
        )
        metrics = self.measure_simclr(projection, positive, negatives)
        return StepOutput(loss, metrics | self.watch_negatives(negatives))
