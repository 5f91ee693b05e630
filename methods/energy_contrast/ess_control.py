"""Control of the temperature by the effective sample size of the negatives."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from energy_contrast.diagnostics import effective_sample_size

MIN_BETA = 1e-2
MAX_BETA = 1e3


class EssController(nn.Module):
    """Holds the inverse temperature and moves it until the effective sample size meets a target.

    ``beta <- beta (1 + gain)`` when ``mean_i ESS_i > target``, else ``beta <- beta (1 - gain)``, with
    ``w_i = softmax(beta s_i)`` over the negatives. A higher beta concentrates the weights and lowers the ESS.

    Everything is a buffer: checkpoints carry it, and an update waits for no device.

    Args:
        temperature: 1 / beta at the start.
        target: ESS wanted, as a share of the negatives.
        gain: Relative change of beta in one update.
        rule: ``corrected`` as above, or ``printed``: the paper's listing, with the two cases exchanged.

    >>> EssController(temperature=0.5, target=0.3, gain=0.01).beta
    tensor(2.)

    Source: FlatNCE (arXiv:2107.01152), algorithm S1.
    Departs from the paper: the listing lowers beta when the ESS is above the target, which moves away from it, and
    leaves beta out of the softmax; ``corrected`` puts both right. The listing does not say how anchors are combined:
    the mean is taken. beta starts at 1 / temperature, not at 1, and stays within [0.01, 1000], where the printed rule
    would run to 0 or infinity.
    """

    beta: Tensor
    ess: Tensor
    target: Tensor

    def __init__(self, *, temperature: float, target: float, gain: float, rule: str = "corrected") -> None:
        super().__init__()
        self.gain = gain
        self.direction = 1.0 if rule == "corrected" else -1.0
        self.register_buffer("beta", torch.tensor(1 / temperature))
        self.register_buffer("ess", torch.tensor(1.0))
        self.register_buffer("target", torch.tensor(target))

    def observe(self, negatives: Tensor) -> None:
        """Keep the mean ESS over anchors of the negatives' similarities (N, K) under the present beta."""
        with torch.no_grad():
            self.ess.copy_(effective_sample_size(negatives * self.beta).mean())

    def update(self, target: float) -> None:
        """Set the target and move beta by one step, according to the ESS observed last."""
        self.target.fill_(target)
        sign = torch.where(self.ess > target, self.direction, -self.direction)
        self.beta.mul_(1 + self.gain * sign).clamp_(MIN_BETA, MAX_BETA)


def scheduled_target(start: float, end: float, share: float, *, schedule: str) -> float:
    """Return the ESS target at a point of the run.

    ``start + (end - start) f(share)`` with ``f(x) = x`` (linear) or ``f(x) = (1 - cos(pi x)) / 2`` (cosine).

    Args:
        start: Target at the beginning, as a share of the negatives.
        end: Target at the end.
        share: Steps done over steps of the run, in [0, 1].
        schedule: ``linear`` or ``cosine``.

    Returns:
        The target.

    >>> scheduled_target(0.5, 0.25, 0.5, schedule="linear")
    0.375

    Source: FlatNCE (arXiv:2107.01152), section 3.3 (targets that change during training).
    """
    rise = share if schedule == "linear" else (1 - math.cos(math.pi * share)) / 2
    return start + (end - start) * rise
