"""A pass through a network in chunks, of which one at a time keeps what its gradient needs.

Shapes: N images, K chunks, C channels, H x W pixels, D embedding size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def pass_in_chunks(network: nn.Module, images: Tensor, num_chunks: int) -> Tensor:
    """Return a network's output, computed in chunks that pass a second time when their gradient is taken.

    ``f(x)_i = f(x_i)`` and ``dL/dtheta = sum_k <dL/df(x_k), df(x_k)/dtheta>`` over chunks k: exact, unless f looks at
    other images. Batch norm does, and sees the images of a chunk; its running statistics move in the first pass.

    Chunk k has rows k, k + K, k + 2K, ...: views of an image that are stacked share a chunk, and ranks that share a
    batch have the chunks of one rank.

    Args:
        network: f.
        images: (N, C, H, W).
        num_chunks: K; 1 is an ordinary pass.

    Returns:
        (N, D).

    Raises:
        ValueError: If K does not divide N.

    >>> pass_in_chunks(nn.Flatten(), torch.arange(4.0).view(4, 1, 1, 1), 2).flatten()
    tensor([0., 1., 2., 3.])

    Source: GradCache (arXiv:2101.06983), its gradient cache technique, steps 1 to 3.
    Departs from the paper: autograd holds the gradients by embeddings.
    """
    if num_chunks == 1:
        whole: Tensor = network(images)
        return whole
    if len(images) % num_chunks:
        raise ValueError(f"num_chunks: must divide the {len(images)} images of a pass, got {num_chunks}")

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _buffers_kept(network)

    chunks = [images[first::num_chunks] for first in range(num_chunks)]
    passed = [checkpoint(network, chunk, use_reentrant=False, context_fn=contexts) for chunk in chunks]
    return torch.stack(passed, dim=1).flatten(0, 1)


@contextmanager
def _buffers_kept(network: nn.Module) -> Iterator[None]:
    """Leave buffers, such as running statistics, as they are."""
    before = [buffer.clone() for buffer in network.buffers()]
    try:
        yield
    finally:
        for buffer, value in zip(network.buffers(), before, strict=True):
            buffer.copy_(value)
