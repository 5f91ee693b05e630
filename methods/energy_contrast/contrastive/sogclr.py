"""SogCLR: SimCLR with negatives normalised by a running mean over all batches of an image, not by the present batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from energy_contrast.contrastive.settings import SogclrConfig
from energy_contrast.contrastive.simclr import PairMethod
from energy_contrast.losses import global_contrastive
from energy_contrast.memory import RunningMeans
from energy_contrast.method import Batch, Progress, StepOutput
from energy_contrast.parallel import gather


class Sogclr(PairMethod):
    """SogCLR.

    ``L = 1/2B sum_a (-s(a, a+) + 1/(2B - 2) sum_k sg(exp(s(a, k) / tau) / u_a) s(a, k))``, k over the views of other
    images, sg without gradient. ``u_a = (1 - gamma) u_i + gamma g_a`` with ``g_a = mean_k exp(s(a, k) / tau)`` and the
    running mean u_i of the anchor's image i, which after the step becomes the mean of its two u_a. The value of L means
    nothing; its gradient estimates that of ``mean_a (-s(a, a+) + tau log G_a)``, G_a over all training images.

    Args:
        config: Settings of SimCLR, share of the present batch.
        encoder: Maps images to embeddings, with ``embedding_size``.

    Metrics: those of SimCLR, and ``global_loss``, ``mean_a (-s(a, a+) + tau log u_a)``, the estimate of that objective.

    Raises:
        ValueError: From ``forward``, if the batch does not say which rows of the training set its images are.

    Source: SogCLR (arXiv:2202.12387), algorithm 1, with the u_a of the released code.
    Departs from the paper: there, both anchors of an image share u_i after its update; here, as in the released code,
    each has its own u_a, so that gamma = 1 gives tau times the gradient of DCL. The mean of the two is stored, as in
    the paper; the released code stores their sum. u_i begins with the first batch's value instead of 0. The default
    temperature is SimCLR's, so that the two differ in the loss alone (0.1 in the released code).
    """

    Config = SogclrConfig
    config: SogclrConfig
    paper = (
        "Yuan, Wu, Qiu, Du, Zhang, Zhou & Yang, Provable Stochastic Optimization for Global Contrastive Learning: "
        "Small Batch Does Not Harm Performance, ICML 2022, arXiv:2202.12387"
    )

    def __init__(self, config: SogclrConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        self.means = RunningMeans(config.update_rate)
        self.memories = {"means": self.means}
        self._rows = torch.empty(0, dtype=torch.int64)
        self._updated: Tensor | None = None

    def kept_bytes(self, shape: tuple[int, int, int], num_images: int) -> int:
        """Return what all methods keep, and the running means."""
        return super().kept_bytes(shape, num_images) + self.means.num_bytes(num_images)

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        """Compute the loss of one step; draws nothing from ``generator``."""
        self.means.num_rows = self.num_images
        rows = _known_rows(batch, look=self.num_images is None or batch.index.device.type == "cpu")
        self._rows = gather(rows.to(batch.views.device))  # (B,) of the global batch
        return super().forward(batch, generator)

    def contrast(self, projection: Tensor, positive: Tensor, negatives: Tensor) -> StepOutput:
        """Compute loss and metrics from similarities with positives (2B,) and negatives (2B, 2B - 2)."""
        tau = self.config.temperature
        with torch.no_grad():
            fresh = (negatives.double() / tau).exp().mean(dim=1)  # (2B,) g_a
            means = self.means.blend(self._rows, fresh.view(2, -1))  # (2, B) u_a
            self._updated = means.mean(dim=0)  # (B,)
            estimate = (tau * means.flatten().log() - positive).mean()
        loss = global_contrastive(positive, negatives, means.flatten(), temperature=tau)
        metrics = self.measure_simclr(projection, positive, negatives)
        return StepOutput(loss, metrics | {"global_loss": estimate})

    def not_recorded(self) -> str:
        """Refuse running means that grow during training, because the number of images is unknown."""
        if self.num_images is None:
            return "update_rate: the means grow with the rows that come, as their number is unknown"
        return super().not_recorded()

    def after_step(self, progress: Progress) -> None:
        """Store the running means of the step's images."""
        if self._updated is not None:
            self.means.store(self._rows, self._updated)
            self._rows, self._updated = self._rows.new_empty(0), None


def _known_rows(batch: Batch, *, look: bool) -> Tensor:
    """Return the rows of a batch's images, or refuse a batch without them; ``look`` waits to refuse negative rows."""
    rows = batch.index
    if rows.dtype != torch.int64 or rows.shape != batch.views.shape[1:2] or (look and bool((rows < 0).any())):
        found = rows.tolist()[:3] if rows.numel() else "none"
        raise ValueError(
            f"index: sogclr keeps a number for each training image and must know which rows a batch has, got {found}; "
            "give every batch its rows, int64 from 0 on"
        )
    return rows
