"""FlatCLR: SimCLR with the FlatNCE loss and, on demand, a temperature controlled by the effective sample size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from energy_contrast.contrastive.simclr import PairConfig, PairMethod
from energy_contrast.ess_control import EssController, scheduled_target
from energy_contrast.losses import flat_nce
from energy_contrast.method import Progress, StepOutput
from energy_contrast.settings import setting


@dataclass(frozen=True)
class FlatclrConfig(PairConfig):
    """Settings of FlatCLR: those of SimCLR, the variant of the loss, and the control of the temperature."""

    include_positive: bool = setting(
        False, "Count the positive among the candidates (eq. 7): the gradient is then that of InfoNCE."
    )
    hoelder_exponent: float = setting(
        1.0,
        "Of the mean over negatives in Hoelder-FlatNCE; 1 is FlatNCE. Any other is FlatNCE at temperature / exponent, "
        "its gradient divided by the exponent.",
        above=0.0,
    )
    ess_target: float = setting(
        0.0,
        "Effective sample size at which the temperature is held; 0 keeps the temperature constant.",
        unit="share of the negatives",
        minimum=0.0,
        maximum=1.0,
        symbol="ESS target",
    )
    ess_target_end: float = setting(
        0.0,
        "Target at the end of training; 0 means the target stays as it starts.",
        unit="share of the negatives",
        minimum=0.0,
        maximum=1.0,
    )
    ess_schedule: Literal["linear", "cosine"] = setting("linear", "How the target moves from start to end.")
    ess_gain: float = setting(
        0.01, "Relative change of 1/temperature in one step.", unit="1/step", above=0.0, below=1.0, symbol="gamma"
    )
    ess_rule: Literal["corrected", "printed"] = setting(
        "corrected", "printed: the paper's listing, whose sign drives the effective sample size off the target."
    )

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        if self.ess_target > 0:
            if self.hoelder_exponent == 1:
                return []
            return [
                "hoelder_exponent: is a factor of the temperature, which ess_target moves already, got "
                f"{self.hoelder_exponent}; leave one of the two out"
            ]
        found = []
        if self.ess_target_end > 0:
            found.append(f"ess_target_end: needs a target to start from, got {self.ess_target_end}; set ess_target too")
        if self.ess_rule != "corrected":
            found.append(f"ess_rule: has no effect without a target, got {self.ess_rule}; set ess_target too")
        return found


class Flatclr(PairMethod):
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
    two differ in the loss alone (the released code uses 0.1). With the released code, the views of both sides are
    anchors, and negatives are of both; eq. 6 has one anchor and its K negatives.
    """

    Config = FlatclrConfig
    config: FlatclrConfig
    paper = "arXiv:2107.01152"

    def __init__(self, config: FlatclrConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        self.controller = EssController(
            temperature=config.temperature, target=config.ess_target, gain=config.ess_gain, rule=config.ess_rule
        )

    @property
    def temperature(self) -> float | Tensor:
        """What divides similarities in this step."""
        return 1 / self.controller.beta if self.config.ess_target > 0 else self.config.temperature

    def contrast(self, projection: Tensor, positive: Tensor, negatives: Tensor) -> StepOutput:
        """Compute loss and metrics from similarities with positives (2B,) and negatives (2B, 2B - 2)."""
        temperature = self.temperature
        config = self.config
        loss = flat_nce(
            positive,
            negatives,
            temperature=temperature,
            include_positive=config.include_positive,
            exponent=config.hoelder_exponent,
        )
        metrics = self.measure_simclr(projection, positive, negatives)
        if self.config.ess_target > 0:
            self.controller.observe(negatives)
            metrics |= {
                "temperature": 1 / self.controller.beta,
                "ess": self.controller.ess.clone(),
                "ess_target": self.controller.target.clone(),
            }
        return StepOutput(loss, metrics)

    def after_step(self, progress: Progress) -> None:
        """Move the temperature towards the target of this point of the run."""
        config = self.config
        if config.ess_target > 0:
            end = config.ess_target_end or config.ess_target
            share = progress.step / progress.num_steps
            self.controller.update(scheduled_target(config.ess_target, end, share, schedule=config.ess_schedule))
