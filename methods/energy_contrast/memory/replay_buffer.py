"""A replay buffer: images that outlive a step, and how often each has been used.

Shapes: S images of the buffer, N rows that are drawn or stored, C channels, H x W pixels.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import torch
from torch import Tensor

DTYPES = {"float32": torch.float32, "half": torch.float16, "uint8": torch.uint8}
_LEVELS = 255


class ReplayBuffer:
    """Images in one block of memory, drawn and stored by row, with a count of uses at each.

    It is not a module buffer, which ``Module.to`` would move and cast with the network. ``half`` rounds to 11 bits.
    ``uint8`` clips to ``bounds`` and rounds to 256 levels, ``k = round(255 (x - low) / (high - low))``.

    Args:
        size: S.
        dtype: ``float32``, ``half`` or ``uint8``. The first keeps float64 images as they are.
        bounds: The values that uint8's levels 0 and 255 stand for.

    Attributes:
        pixels: (S, C, H, W) as stored; (0,) before ``allocate``.
        counts: (S,) int32; (0,) before ``allocate``.

    >>> buffer = ReplayBuffer(4)
    >>> buffer.allocate((1, 2, 2), torch.float32, torch.device("cpu"))
    >>> images = torch.stack([torch.zeros(1, 2, 2), torch.ones(1, 2, 2)])
    >>> buffer.store(torch.tensor([1, 1]), images, torch.tensor([7, 8]))
    >>> buffer.draw(torch.tensor([1]), torch.float32)[0].sum(), buffer.counts
    (tensor(4.), tensor([0, 8, 0, 0], dtype=torch.int32))

    Source: EBCLR (arXiv:2202.04933), section 3.3 and algorithm 2.
    Departs from the paper: ``half`` and ``uint8``, which the released code does not have, save memory.
    """

    def __init__(self, size: int, *, dtype: str = "float32", bounds: tuple[float, float] = (-1.0, 1.0)) -> None:
        if size < 1:
            raise ValueError(f"buffer_size: a buffer needs an image, got {size}; use 1 or more")
        if dtype not in DTYPES:
            raise ValueError(f"buffer_dtype: no such choice, got {dtype!r}; use one of {', '.join(DTYPES)}")
        self.size = size
        self.dtype = dtype
        self.bounds = bounds
        self.pixels = torch.empty(0)
        self.counts = torch.empty(0, dtype=torch.int32)

    @property
    def allocated(self) -> bool:
        """Whether memory for images has been allocated."""
        return len(self.counts) > 0

    def num_bytes(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
        """Return the bytes that S images of ``shape`` (C, H, W), given as ``dtype``, take with their counts."""
        return self.size * (math.prod(shape) * self._stored_dtype(dtype).itemsize + self.counts.itemsize)

    def require_room(self, shape: Sequence[int], available_bytes: int, where: str) -> None:
        """Check that memory can hold S images of ``shape`` (C, H, W).

        Raises:
            ValueError: If they need more than ``available_bytes``; the message names the device as ``where``.
        """
        needed = self.num_bytes(shape)
        if needed > available_bytes:
            size = "x".join(map(str, shape))
            raise ValueError(
                f"buffer_size: {self.size} images of {size} as {self.dtype} do not fit on {where}, got "
                f"{needed / 1e9:,.2f} GB needed and {available_bytes / 1e9:,.2f} GB available; use fewer, "
                "buffer_dtype=half or uint8, or another buffer_device"
            )

    def allocate(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        """Allocate S images, all zero and never used.

        Args:
            shape: (C, H, W).
            dtype: Floating type of the images that will be stored.
            device: Device of the buffer.
        """
        self.pixels = torch.zeros(self.size, *shape, dtype=self._stored_dtype(dtype), device=device)
        self.counts = torch.zeros(self.size, dtype=torch.int32, device=device)

    def draw(self, rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return copies of the images (N, C, H, W) as ``dtype`` and of the counts (N,), on the device of ``rows``.

        Args:
            rows: (N,) int64; a row may occur more than once.
            dtype: Floating type to return.
        """
        where = rows.to(self.pixels.device)
        images = self._decode(self.pixels.index_select(0, where).to(rows.device), dtype)
        return images, self.counts.index_select(0, where).to(rows.device)

    def store(self, rows: Tensor, images: Tensor, counts: Tensor) -> None:
        """Replace rows. Where a row occurs more than once the last one stays, on every device.

        Args:
            rows: (N,) int64.
            images: (N, C, H, W) floating.
            counts: (N,) how often each has been used.
        """
        ordered, order = rows.sort(stable=True)
        # Every duplicate of a row writes the last one's image, so that the order of writes does not matter.
        last = order[torch.searchsorted(ordered, ordered, right=True) - 1]  # (N,)
        where = ordered.to(self.pixels.device)
        self.pixels.index_copy_(0, where, self._encode(images.detach()[last]).to(self.pixels.device))
        self.counts.index_copy_(0, where, counts[last].to(self.counts))

    def to(self, device: torch.device) -> None:
        """Move the buffer; nothing happens when it is there already."""
        self.pixels, self.counts = self.pixels.to(device), self.counts.to(device)

    def state_dict(self) -> dict[str, Tensor]:
        """Return images, counts and bounds; they share memory with the buffer."""
        bounds = torch.tensor(self.bounds, dtype=torch.float64)
        return {"pixels": self.pixels, "counts": self.counts, "bounds": bounds}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over copies of what ``state_dict`` returned, on the device where they are.

        Raises:
            ValueError: If they are of another size, or not what such a buffer holds.
        """
        missing = {"pixels", "counts", "bounds"} - state.keys()
        if missing:
            raise ValueError(f"buffer: tensors are missing, got no {', '.join(sorted(missing))}")
        pixels, counts, bounds = state["pixels"], state["counts"], state["bounds"]
        if counts.dtype != torch.int32 or counts.ndim != 1 or bounds.shape != (2,) or not _ascends(bounds):
            raise ValueError(f"buffer: not counts and bounds, got {counts.dtype} {tuple(counts.shape)}, {bounds}")
        if len(counts) not in (0, self.size):
            raise ValueError(f"buffer_size: the saved buffer has another size, got {len(counts)}; use that")
        types = (torch.float32, torch.float64) if self.dtype == "float32" else (DTYPES[self.dtype],)
        if len(pixels) != len(counts) or (len(counts) > 0 and (pixels.ndim != 4 or pixels.dtype not in types)):
            raise ValueError(f"buffer: not images as {self.dtype}, got {pixels.dtype} {tuple(pixels.shape)}")
        self.pixels, self.counts = pixels.clone(), counts.clone()
        low, high = bounds.tolist()
        self.bounds = (low, high)

    def require_images_of(self, shape: Sequence[int]) -> None:
        """Refuse a buffer that a saved state has left without images, or with images of another shape.

        Args:
            shape: (C, H, W) of the images that will be stored.

        Raises:
            ValueError: If it has none, or others.
        """
        if not self.allocated:
            raise ValueError("a replay buffer without images")
        if tuple(self.pixels.shape[1:]) != tuple(shape):
            got, expected = ("x".join(map(str, each)) for each in (self.pixels.shape[1:], shape))
            raise ValueError(f"a replay buffer with images of {got} in place of {expected}")

    def _stored_dtype(self, dtype: torch.dtype) -> torch.dtype:
        return torch.promote_types(dtype, torch.float32) if self.dtype == "float32" else DTYPES[self.dtype]

    def _encode(self, images: Tensor) -> Tensor:
        if self.dtype != "uint8":
            return images.to(self.pixels.dtype)
        low, high = self.bounds
        return ((images - low) * (_LEVELS / (high - low))).round_().clamp_(0, _LEVELS).to(torch.uint8)

    def _decode(self, stored: Tensor, dtype: torch.dtype) -> Tensor:
        images = stored.to(dtype)
        if self.dtype != "uint8":
            return images
        low, high = self.bounds
        return images.mul_((high - low) / _LEVELS).add_(low)


def _ascends(bounds: Tensor) -> bool:
    low, high = bounds.tolist()
    return math.isfinite(low) and math.isfinite(high) and low < high


def available_bytes(device: torch.device) -> int:
    """Return how much memory a device has for a buffer: the free memory of a GPU, else all memory of this machine.

    Free memory of a machine says little, since the system fills it with a file cache that it gives up on demand.

    Args:
        device: Any; one that cannot report its memory is taken to share the machine's.

    Returns:
        Bytes.

    >>> available_bytes(torch.device("cpu")) > 0
    True

    Source: ours.
    """
    tell = getattr(torch.get_device_module(device), "mem_get_info", None)
    if tell is not None:
        return int(tell(device)[0])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
