"""How fast a run trains."""

from __future__ import annotations

import time

import torch


class RateMeter:
    """Mean and spread of images per second over the intervals between log steps.

    The first interval holds one-off costs (memory, compilation) and is left out once there is a second one.
    """

    def __init__(self) -> None:
        self._rates: list[float] = []
        self._start = time.perf_counter()
        self._images = 0

    def count(self, images: int) -> None:
        """Add images that were trained on."""
        self._images += images

    def restart(self) -> None:
        """Start an interval now, leaving out what went before (scores, checkpoints)."""
        self._start, self._images = time.perf_counter(), 0

    def lap(self) -> float:
        """End the interval and return its rate, images per second."""
        rate = self._images / max(time.perf_counter() - self._start, 1e-9)
        if self._images:
            self._rates.append(rate)
        self.restart()
        return rate

    def summary(self) -> dict[str, float] | None:
        """Return mean and standard deviation, or None before the first interval has ended."""
        rates = torch.tensor(self._rates[1:] or self._rates, dtype=torch.float64)
        if len(rates) == 0:
            return None
        return {"mean": rates.mean().item(), "std": rates.std(unbiased=False).item()}
