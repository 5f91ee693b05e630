"""SimCLR: two views of an image are each other's positive, all other views of the batch are negatives.

``PairMethod`` is the part that it shares with methods that form the same pairs and have another loss.

Shapes: B images, C channels, H x W pixels, D embedding size, P projection size.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from energy_contrast.bounds import donsker_varadhan, fenchel_legendre, nwj
from energy_contrast.contrastive.settings import ControlledPairConfig, PairConfig, SimclrConfig
from energy_contrast.ess_control import ControlledMethod, new_controller
from energy_contrast.losses import flat_nce, info_nce, negative_spread, pair_similarities, temperature_free
from energy_contrast.method import Batch, Method, StepOutput
from energy_contrast.networks.heads import at_least_float32, new_head
from energy_contrast.parallel import gather


class PairMethod(Method):
    """A method that compares both views of each image with all views of a batch; a subclass defines the loss.

    The views pass through f and g, ``p = g(f(x))``; s is the cosine of projections p of the global batch. With
    ``spread_weight`` above 0 the loss is that of the subclass plus ``spread_weight`` times ``negative_spread`` of the
    similarities s(u_i, v_j), i != j, of images in the first view with other images in the second.

    Args:
        config: Temperature, shape of the projection head, weight of the spread.
        encoder: f, with ``embedding_size``.

    Metrics: those of the subclass; with ``spread_weight`` also ``negative_spread``.

    Source: SimCLR (arXiv:2002.05709), algorithm 1, up to its loss; VRNS (arXiv:2506.09781), definition 5.7.
    Departs from the papers: similarities are float32 even under autocast. Where the number of training images is
    unknown, VRNS's -1/(n - 1) is 0.
    """

    Config = PairConfig
    not_in_chunks = ""
    config: PairConfig

    def __init__(self, config: PairConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        self.head = new_head(config, encoder, batch_norm=config.projection_batch_norm)

    @property
    def temperature(self) -> float | Tensor:
        """What divides similarities in this step."""
        return self.config.temperature

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        """Compute the loss of one step; draws nothing from ``generator``."""
        images = batch.views.flatten(0, 1)  # (2B, C, H, W), in the memory format of the views
        # 1. h = f(x), p = g(h): both views in one pass, so that batch norm sees them together
        projection = at_least_float32(self.head(self.encode(images)))  # (2B, P)
        # 2. the projections of all ranks: from here on, B counts the images of the global batch
        projection = gather(projection.view(*batch.views.shape[:2], -1), dim=1).flatten(0, 1)
        with torch.autocast(images.device.type, enabled=False):
            # 3. s(i, k) for all pairs
            positive, negatives = pair_similarities(*projection.chunk(2))  # (2B,), (2B, 2B - 2)
            # 4. the loss, averaged over the 2B anchors
            output = self.contrast(projection, positive, negatives)
            return self._with_spread(output, negatives) if self.config.spread_weight else output

    def _with_spread(self, output: StepOutput, negatives: Tensor) -> StepOutput:
        """Add VRNS's term to a loss."""
        count = len(negatives) // 2
        across = negatives.view(2, count, 2, count - 1)[0, :, 1]  # (B, B - 1), of first views with second ones
        spread = negative_spread(across, self.num_images)
        loss = output.loss + self.config.spread_weight * spread
        return StepOutput(loss, output.metrics | {"negative_spread": spread.detach()})

    @abstractmethod
    def contrast(self, projection: Tensor, positive: Tensor, negatives: Tensor) -> StepOutput:
        """Compute loss and metrics from similarities with positives (2B,) and negatives (2B, 2B - 2)."""

    def measure_simclr(self, projection: Tensor, positive: Tensor, negatives: Tensor) -> dict[str, Tensor]:
        """Return SimCLR's metrics for a method whose loss is another one; no gradient is taken of them."""
        with torch.no_grad():
            readable = info_nce(positive, negatives, temperature=self.temperature)
        return self.measure(readable, projection, positive, negatives, temperature=self.temperature)


class ControlledPairMethod(ControlledMethod, PairMethod):
    """A pair method whose temperature only scales its loss, so that the effective sample size may control it.

    Args:
        config: Those of ``PairMethod``, and the control of the temperature.
        encoder: f, with ``embedding_size``.
    """

    Config = ControlledPairConfig
    config: ControlledPairConfig

    def __init__(self, config: ControlledPairConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        self.controller = new_controller(config)


_BOUNDS = {"donsker-varadhan": donsker_varadhan, "fenchel-legendre": fenchel_legendre, "nwj": nwj}
"""Losses whose negative estimates the mutual information."""

OBJECTIVES = {"flatnce": flat_nce, **_BOUNDS}
"""Other losses at a temperature, by the names of ``SimclrConfig.objective``."""


class Simclr(ControlledPairMethod):
    """SimCLR.

    ``L = 1/2B sum_i -log( exp(s(i, i+) / tau) / sum_{k != i} exp(s(i, k) / tau) )``, i and k over both views, s the
    cosine of projections ``p = g(f(x))``.

    Args:
        config: Temperature and its control, shape of the projection head, objective.
        encoder: f, with ``embedding_size``.

    Metrics: ``info_nce`` always; while ``diagnosing`` also what ``diagnose`` returns, of the projections; with
    donsker-varadhan, fenchel-legendre and nwj also the value of the bound, ``mutual_information``, in nats; while the
    temperature is controlled, what ``watch_negatives`` returns.

    Source: SimCLR (arXiv:2002.05709), algorithm 1; temperature-free: arXiv:2501.17683; the other objectives: FlatNCE
    (arXiv:2107.01152), table 1.
    Departs from the paper: the default temperature 0.2 is the authors' later advice for small batches; the paper's
    CIFAR-10 runs use 0.5 (appendix B.9). Similarities are float32 even under autocast.
    """

    Config = SimclrConfig
    config: SimclrConfig
    paper = (
        "Chen, Kornblith, Norouzi & Hinton, A Simple Framework for Contrastive Learning of Visual Representations, "
        "ICML 2020, arXiv:2002.05709"
    )

    def contrast(self, projection: Tensor, positive: Tensor, negatives: Tensor) -> StepOutput:
        """Compute loss and metrics from similarities with positives (2B,) and negatives (2B, 2B - 2)."""
        objective, tau = self.config.objective, self.temperature
        if objective == "infonce":
            loss = info_nce(positive, negatives, temperature=tau)
            metrics = self.measure(loss, projection, positive, negatives, temperature=tau)
        elif objective == "temperature-free":
            loss = temperature_free(positive, negatives)
            metrics = self.measure_simclr(projection, positive, negatives)
        else:
            loss = OBJECTIVES[objective](positive, negatives, temperature=tau)
            metrics = self.measure_simclr(projection, positive, negatives)
            if objective in _BOUNDS:
                metrics["mutual_information"] = -loss.detach()
        return StepOutput(loss, metrics | self.watch_negatives(negatives))
