"""Control of the temperature by the effective sample size of the negatives.

Shapes: N anchors, K negatives of each anchor.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from energy_contrast.diagnostics import effective_sample_size
from energy_contrast.method import Method, Progress, Requirements
from energy_contrast.settings import EssConfig

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
    the mean is taken. beta starts at 1 / temperature, not at 1, and updates keep it within [0.01, 1000], where the
    printed rule would run to 0 or infinity. Section 3.2 speaks of annealing beta; section 3.3 schedules the target
    instead, and so do the methods here.
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

    def observe(self, negatives: Tensor, present: Tensor | None = None) -> None:
        """Keep the mean ESS over anchors of the negatives' similarities under the present beta.

        Args:
            negatives: (N, K).
            present: (N, K) bool, which of them are negatives; None means all. An anchor without any is left out of the
                mean, and where no anchor has one the ESS stays as it was.
        """
        with torch.no_grad():
            shares = effective_sample_size(negatives * self.beta, present)  # (N,)
            if present is None:
                self.ess.copy_(shares.mean())
            else:
                known = present.any(dim=1)  # (N,)
                mean = shares.where(known, 0).sum() / known.sum()
                self.ess.copy_(torch.where(known.any(), mean, self.ess))

    def update(self, target: float) -> None:
        """Set the target and move beta by one step, according to the ESS observed last."""
        self.target.fill_(target)
        sign = torch.where(self.ess > target, self.direction, -self.direction)
        self.beta.mul_(1 + self.gain * sign).clamp_(MIN_BETA, MAX_BETA)


class ControlledMethod(Method):
    """A method with one temperature, which divides the similarities of its loss and does nothing else.

    With ``ess_target`` above 0 an ``EssController`` holds it. A subclass makes its ``controller`` with
    ``new_controller`` and hands ``watch_negatives`` what its loss weighs.

    Metrics while the temperature is controlled, of every step: ``temperature``, ``ess`` of the loss's own negatives,
    and ``ess_target``.

    Attributes:
        controller: Holds the temperature; None where it is constant, so that a checkpoint has nothing of it.
    """

    controller: EssController | None

    @classmethod
    def requirements(cls, config: Any, batch_size: int) -> Requirements:
        """Return what all methods need, and refuse a target that no temperature reaches."""
        count = cls.num_negatives(config, batch_size)
        for name in ("ess_target", "ess_target_end"):
            target = getattr(config, name)
            if 0 < target * count <= 1:
                raise ValueError(
                    f"{name}: no temperature brings the effective sample size of {count} negatives to 1/{count} or "
                    f"less, got {target:g}; use more negatives, a target above {1 / count:.4g}, or 0"
                )
        return super().requirements(config, batch_size)

    @classmethod
    def num_negatives(cls, config: Any, batch_size: int) -> int:
        """Return the most negatives that an anchor has in a global batch of ``batch_size`` images."""
        return 2 * batch_size - 2

    @property
    def temperature(self) -> float | Tensor:
        """What divides similarities in this step."""
        held = self._held
        temperature: float | Tensor = self.config.temperature if held is None else 1 / held.beta
        return temperature

    def watch_negatives(self, *negatives: Tensor, present: Tensor | None = None) -> dict[str, Tensor]:
        """Let the controller, if there is one, observe the similarities (N, K) of a step; return what it says of them.

        Args:
            negatives: Of the anchors of all ranks, in one part or several; not divided by the temperature.
            present: (N, K) bool, which of them are negatives; None means all.
        """
        held = self._held
        if held is None:
            return {}
        held.observe(torch.cat(negatives) if len(negatives) > 1 else negatives[0], present)
        return {"temperature": 1 / held.beta, "ess": held.ess.clone(), "ess_target": held.target.clone()}

    def not_recorded(self) -> str:
        """Refuse a target that moves."""
        end = self.config.ess_target_end or self.config.ess_target
        if self._held is not None and end != self.config.ess_target:
            return "ess_target_end: the target is another number in each step; one that stays can be recorded"
        return super().not_recorded()

    def after_step(self, progress: Progress) -> None:
        """Move the temperature, if it is controlled, towards the target of this point of the run."""
        held, config = self._held, self.config
        if held is not None:
            end = config.ess_target_end or config.ess_target
            share = progress.step / progress.num_steps
            held.update(scheduled_target(config.ess_target, end, share, schedule=config.ess_schedule))

    @property
    def _held(self) -> EssController | None:
        return self.controller if self.config.ess_target else None


def new_controller(config: EssConfig) -> EssController | None:
    """Return the controller that settings ask for; None where they ask for a constant temperature.

    Args:
        config: Temperature at the start, target, gain.

    >>> new_controller(EssConfig()) is None
    True

    Source: ours.
    """
    if not config.ess_target:
        return None
    return EssController(temperature=config.temperature, target=config.ess_target, gain=config.ess_gain)


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
