"""LeJEPA: the views of an image agree, and all projections together follow a Gaussian; no negatives.

Shapes: V views, B images, C channels, H x W pixels, D embedding size, P projection size, M slices, K knots.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from energy_contrast.method import Batch, Method, Requirements, StepOutput
from energy_contrast.networks.heads import at_least_float32, new_head
from energy_contrast.parallel import gather
from energy_contrast.predictive.prediction import measure_pairs
from energy_contrast.predictive.settings import LejepaConfig


class Lejepa(Method):
    """LeJEPA.

    ``L = (1 - lambda) 1/VBP sum |z_v - mean_v z_v|^2 + lambda mean_v R(z_v)`` with projections z = g(f(x)) and R the
    mean of ``epps_pulley`` over slices, or, with ``visreg``, ``off_centre + off_scale + off_shape``.

    Args:
        config: Settings.
        encoder: f, with ``embedding_size``.

    Metrics: ``prediction`` and ``regularizer``, the terms before their weights; ``info_nce`` of the first two views'
    projections at temperature 0.2; while ``diagnosing`` also what ``diagnose`` returns, of these.

    Source: LeJEPA (arXiv:2511.08544), the definitions of SIGReg and of the LeJEPA loss; VISReg (arXiv:2606.02572), eq.
    1, 2, 5, 6 and 8.
    Departs from the papers: all views have the same size, where the papers have two large and six or more small ones.
    Squared distances are means over dimensions, as in public implementations. Statistics are of the global batch, and
    the slices are the same on every rank, where VISReg draws others on each. All views pass in one batch; shape of the
    head and batch norm in its hidden layers are ours.
    """

    Config = LejepaConfig
    has_negatives = False
    not_in_chunks = ""
    config: LejepaConfig
    paper = (
        "Balestriero & LeCun, LeJEPA: Provable and Scalable Self-Supervised Learning Without the Heuristics, 2025, "
        "arXiv:2511.08544"
    )

    def __init__(self, config: LejepaConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        self.num_views = config.num_views
        self.head = new_head(config, encoder, num_layers=config.projection_num_layers, batch_norm=True)

    @classmethod
    def requirements(cls, config: LejepaConfig, batch_size: int) -> Requirements:
        """Return what all methods need, with the number of views of the settings."""
        return replace(super().requirements(config, batch_size), num_views=config.num_views)

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        """Compute the loss of one step; ``generator`` draws the slices."""
        # 1. z = g(f(x)): all views in one pass, so that batch norm sees them together
        projection = at_least_float32(self.head(self.encode(batch.views.flatten(0, 1))))
        own = projection.view(*batch.views.shape[:2], -1)  # (V, B, P) of this rank
        with torch.autocast(own.device.type, enabled=False):
            whole = gather(own, dim=1)  # of all ranks: from here on, B counts the images of the global batch
            # 2. views agree
            prediction = disagreement(whole)
            # 3. projections are spread like a Gaussian, along the same random directions on every rank
            slices = draw_directions(self.config.num_slices, own, generator)  # (P, M)
            if self.config.regularizer == "sigreg":
                regularizer = self._sigreg(own, slices, whole.shape[1])
            else:
                regularizer = off_centre(whole) + off_scale(whole) + off_shape(whole, slices)
            weight = self.config.regularizer_weight
            loss = (1 - weight) * prediction + weight * regularizer
            metrics = {"prediction": prediction.detach(), "regularizer": regularizer.detach()}
            return StepOutput(loss, metrics | measure_pairs(self, whole[:2]))

    def _sigreg(self, own: Tensor, slices: Tensor, count: int) -> Tensor:
        """Return () the mean of ``epps_pulley`` over slices and views; ``count`` is the number of images of all ranks.

        The characteristic function is a mean over images, and all ranks hold equally many: each rank computes that of
        its own images, which is the costly part, and their mean over ranks is that of all images.
        """
        config = self.config
        frequencies = torch.linspace(0, config.largest_frequency, config.num_knots, dtype=own.dtype, device=own.device)
        found = gather(characteristic_function(own @ slices, frequencies)[None]).mean(dim=0)  # (2, V, M, K)
        return epps_pulley(found, frequencies, count).mean()


def disagreement(z: Tensor) -> Tensor:
    """Return how far the views of an image lie from their mean.

    ``1/VBP sum |z_v - mean_v z_v|^2``

    Args:
        z: (V, B, P).

    Returns:
        () at least 0; for two views, a quarter of their mean squared difference.

    >>> disagreement(torch.tensor([[[3.0, 1.0]], [[1.0, 1.0]]]))
    tensor(0.5000)

    Source: LeJEPA (arXiv:2511.08544), the prediction loss.
    """
    return (z - z.mean(dim=0)).square().mean()


def draw_directions(count: int, like: Tensor, generator: torch.Generator) -> Tensor:
    """Return (P, M) random directions as unit columns, uniform on the sphere.

    ``a = n / |n|``, n standard normal.

    Args:
        count: M.
        like: (..., P); the directions get its dtype and device.
        generator: Source of the draws.

    >>> draw_directions(3, torch.zeros(5, 2), torch.Generator()).norm(dim=0).round()
    tensor([1., 1., 1.])

    Source: LeJEPA (arXiv:2511.08544), the definition of SIGReg.
    """
    normal = torch.randn(like.shape[-1], count, generator=generator, dtype=like.dtype, device=generator.device)
    return F.normalize(normal, dim=0).to(like.device)


def characteristic_function(values: Tensor, frequencies: Tensor) -> Tensor:
    """Return the empirical characteristic functions of samples, real and imaginary parts.

    ``phi(t) = 1/B sum_i exp(i x_i t)``

    Args:
        values: (..., B, M), M samples of B numbers.
        frequencies: (K,) t.

    Returns:
        (2, ..., M, K).

    >>> characteristic_function(torch.tensor([[2.0], [-2.0]]), torch.tensor([0.0])).flatten()
    tensor([1., 0.])

    Source: LeJEPA (arXiv:2511.08544), the Epps-Pulley statistic.
    """
    angles = values[..., None] * frequencies  # (..., B, M, K)
    return torch.stack([angles.cos().mean(dim=-3), angles.sin().mean(dim=-3)])


def epps_pulley(characteristic: Tensor, frequencies: Tensor, count: int) -> Tensor:
    """Return how far samples are from standard normal, by their characteristic functions.

    ``T = B int |phi(t) - exp(-t^2 / 2)|^2 exp(-t^2 / 2) dt`` over [-t_K, t_K] by the trapezoidal rule; the integrand is
    even. For B standard normal numbers its expectation is ``int (1 - exp(-t^2)) exp(-t^2 / 2) dt`` at any B: 1.05 for
    t_K = 3, 1.06 for t_K = infinity.

    Args:
        characteristic: (2, ..., K) as ``characteristic_function`` returns it.
        frequencies: (K,) t, ascending from 0.
        count: B, size of a sample.

    Returns:
        (...) statistics, at least 0.

    >>> epps_pulley(torch.tensor([[1.0, 1.0], [0.0, 0.0]]), torch.tensor([0.0, 50.0]), 9)
    tensor(0.)

    Source: LeJEPA (arXiv:2511.08544), the Epps-Pulley statistic; Epps and Pulley 1983.
    """
    normal = torch.exp(-frequencies.square() / 2)  # (K,)
    real, imaginary = characteristic
    distance = ((real - normal).square() + imaginary.square()) * normal  # (..., K)
    return 2 * count * torch.trapezoid(distance, frequencies, dim=-1)


def off_centre(z: Tensor) -> Tensor:
    """Return the mean square of the batch's means.

    ``1/VP sum_vj mean_i(z_vij)^2``

    Args:
        z: (V, B, P).

    Returns:
        () at least 0.

    >>> off_centre(torch.tensor([[[3.0], [1.0]]]))
    tensor(4.)

    Source: VISReg (arXiv:2606.02572), eq. 6.
    """
    return z.mean(dim=1).square().mean()


def off_scale(z: Tensor) -> Tensor:
    """Return the mean squared distance of standard deviations over the batch from 1.

    ``1/VP sum_vj (1 - std_vj)^2``, the variance over B images with the divisor B.

    Args:
        z: (V, B, P).

    Returns:
        () at least 0; 1 when all images agree.

    >>> off_scale(torch.tensor([[[3.0], [-3.0]]]))
    tensor(4.)

    Source: VISReg (arXiv:2606.02572), eq. 1.
    """
    return (1 - z.std(dim=1, correction=0)).square().mean()


def off_shape(z: Tensor, directions: Tensor) -> Tensor:
    """Return the sliced Wasserstein distance, squared, of standardised vectors from a standard Gaussian.

    ``1/VBM sum (x_(i) - q_i)^2`` with the sorted ``x = a^T (z - mean) / (std + 1e-4)``, no gradient through std, and
    quantiles q_i of the standard normal at i / (B + 1).

    Args:
        z: (V, B, P).
        directions: (P, M) unit columns a.

    Returns:
        () at least 0.

    >>> q = 0.6744898  # the upper quartile; of three images the quantiles are -q, 0 and q
    >>> off_shape(torch.tensor([[[-1.5**0.5], [0.0], [1.5**0.5]]]), torch.ones(1, 1)).item() < (1.5**0.5 - q) ** 2
    True

    Source: VISReg (arXiv:2606.02572), eq. 2 and 5; quantiles and 1e-4 as in lightly.
    """
    spread = z.std(dim=1, correction=0, keepdim=True).detach()
    sorted_ = (((z - z.mean(dim=1, keepdim=True)) / (spread + 1e-4)) @ directions).sort(dim=1).values  # (V, B, M)
    count = z.shape[1]
    quantiles = torch.special.ndtri(torch.arange(1, count + 1, dtype=z.dtype, device=z.device) / (count + 1))
    distance: Tensor = (sorted_ - quantiles[:, None]).square().mean()
    return distance
