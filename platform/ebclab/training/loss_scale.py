"""The loss scale of ``training.precision: float16``, which lifts gradients into the range that float16 has."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ebclab.errors import DivergedError

LOWEST = torch.finfo(torch.float16).tiny
"""Below it, the scale itself loses digits in float16: no gradient is left to save."""

_GROWTH_INTERVAL = 2000  # steps, torch's and the mixed-precision literature's
_MANY = 0.01  # of a run's steps


@dataclass(frozen=True)
class ScaleState:
    """What a checkpoint holds of a loss scale."""

    scale: float = 65536.0  # factor on the loss
    good_steps: int = 0  # steps since it last changed
    skipped_steps: int = 0  # steps skipped since the run began

    def __post_init__(self) -> None:
        sound = 0 < self.scale < math.inf and 0 <= self.good_steps < _GROWTH_INTERVAL and self.skipped_steps >= 0
        if not sound:
            raise ValueError(f"no state of a loss scale, got {self}")


class LossScale:
    """Torch's ``GradScaler``: halves when a gradient is not finite, and skips that step; doubles after 2000 others.

    Gradients of several ranks are means over them, the same bits on each: all ranks skip the same steps. In other
    precisions than float16 it does nothing.
    """

    def __init__(self, device: torch.device, precision: str) -> None:
        self.enabled = precision == "float16"
        self._scaler = torch.amp.GradScaler(device.type, growth_interval=_GROWTH_INTERVAL, enabled=self.enabled)
        self._scale, self._skipped_steps = self._scaler.get_scale(), 0

    def scaled(self, loss: Tensor) -> Tensor:
        """Return the loss to differentiate."""
        scaled: Tensor = self._scaler.scale(loss)
        return scaled

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by the scale."""
        self._scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Move the weights unless the step is skipped, set the next step's scale, and return whether they moved."""
        self._scaler.step(optimizer)
        self._scaler.update()
        before, self._scale = self._scale, self._scaler.get_scale()
        skipped = self._scale < before
        self._skipped_steps += skipped
        return not skipped

    def metrics(self) -> dict[str, float]:
        """Return what is logged; nothing in other precisions."""
        if not self.enabled:
            return {}
        return {"loss_scale": self._scale, "skipped_steps": float(self._skipped_steps)}

    def require_useful(self, step: int) -> None:
        """Raise DivergedError if steps were skipped until the scale fell below float16's range."""
        if self._scale < LOWEST:
            raise DivergedError(
                f"step {step}: training.precision: gradients are not finite at any loss scale, got float16 and "
                f"{self._skipped_steps} skipped steps; use bfloat16 or float32, or lower optimizer.learning_rate"
            )

    def in_words(self, steps: int) -> str:
        """Return a sentence if many of a run's steps were skipped, else nothing."""
        if self._skipped_steps <= _MANY * steps:
            return ""
        return (
            f"training.precision=float16: {self._skipped_steps} of {steps} steps ({self._skipped_steps / steps:.0%}) "
            f"were skipped, because gradients were not finite; the loss scale is {self._scale:g}"
        )

    def state(self) -> dict[str, dict[str, float]]:
        """Return plain values for a checkpoint; nothing in other precisions."""
        if not self.enabled:
            return {}
        good_steps = self._scaler.state_dict()["_growth_tracker"]
        return {"loss_scale": asdict(ScaleState(self._scale, good_steps, self._skipped_steps))}

    def load(self, saved: dict[str, Any] | None) -> None:
        """Continue from what ``state`` returned; None starts over."""
        if not self.enabled:
            return
        state = ScaleState(**(saved or {}))
        self._scale, self._skipped_steps = state.scale, state.skipped_steps
        self._scaler.load_state_dict(
            {**self._scaler.state_dict(), "scale": state.scale, "_growth_tracker": state.good_steps}
        )
