"""Running means, one for each training image, that outlive a step.

Shapes: S rows up to the last that was stored, N rows of a step, A new values of each row.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


class RunningMeans:
    """A positive number for each image, found by the image's row.

    ``u <- (1 - gamma) u + gamma g`` for a new value g; a row starts at its first value. The memory grows as rows come,
    unless ``num_rows`` is set. It is float64, since ``exp(s / tau)`` overflows float32 at temperatures below 0.012.

    Args:
        rate: gamma, the share of a new value.

    Attributes:
        means: (S,) u, float64; 0 where a row was never stored.
        num_rows: Number of possible rows, if known; if None, every step reads its highest row, which synchronises with
            the device.

    >>> memory = RunningMeans(0.75)
    >>> memory.store(torch.tensor([2]), torch.tensor([1.0]))
    >>> memory.blend(torch.tensor([2, 9]), torch.tensor([[5.0, 7.0]]))
    tensor([[4., 7.]], dtype=torch.float64)

    Source: SogCLR (arXiv:2202.12387), algorithm 1, the update of u.
    Departs from the paper: u begins with the first value of its row, not with a constant.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.means = torch.empty(0, dtype=torch.float64)
        self.num_rows: int | None = None

    def blend(self, rows: Tensor, fresh: Tensor) -> Tensor:
        """Return the means of rows after an update by new values; nothing is stored.

        Args:
            rows: (N,) int64.
            fresh: (A, N) g, A values for each row, each of which updates the stored mean on its own.

        Returns:
            (A, N) float64.
        """
        self._make_room(rows)
        fresh = fresh.double()
        stored = self.means[rows]  # (N,)
        return torch.where(stored == 0, fresh, stored).lerp(fresh, self.rate)

    def store(self, rows: Tensor, means: Tensor) -> None:
        """Replace the means of rows.

        Args:
            rows: (N,) int64, all different.
            means: (N,) u, above 0.
        """
        self._make_room(rows)
        self.means[rows] = means.double()

    def num_bytes(self, num_images: int) -> int:
        """Return the bytes that the means of ``num_images`` rows take."""
        return num_images * self.means.itemsize

    def state_dict(self) -> dict[str, Tensor]:
        """Return the means, without a copy."""
        return {"means": self.means}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over a copy of what ``state_dict`` returned.

        Raises:
            ValueError: If it is not one positive number a row, or 0.
        """
        means = state.get("means", torch.empty(0, 0))
        if means.ndim != 1 or means.dtype != torch.float64 or not bool(((means >= 0) & (means < math.inf)).all()):
            raise ValueError(f"means: not one number a row, 0 or more, got {means.dtype} {tuple(means.shape)}")
        self.means = means.clone()

    def _make_room(self, rows: Tensor) -> None:
        """Extend the means to hold every row, and move them to the device of ``rows``."""
        missing = (int(rows.max()) + 1 if self.num_rows is None else self.num_rows) - len(self.means)
        self.means = self.means.to(rows.device)
        if missing > 0:
            self.means = torch.cat([self.means, self.means.new_zeros(missing)])
