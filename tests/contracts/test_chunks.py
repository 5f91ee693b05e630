"""A batch that passes its encoders in chunks trains as a whole batch does, for every method that allows it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_methods import SMALL, small_encoder
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from energy_contrast.catalog import METHODS
from energy_contrast.method import Batch
from energy_contrast.networks import build_encoder
from energy_contrast.networks.chunks import pass_in_chunks

from . import test_parity
from .test_parity import CASES, METRIC_TOLERANCE, TOLERANCE, assert_close, train

ALLOWED = [case for case in CASES if not METHODS[CASES[case][0]].not_in_chunks]
CHUNKS = 4


@pytest.mark.parametrize("case", ALLOWED)
def test_chunks_equal_the_whole_batch_without_batch_norm(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_parity, "NUM_STEPS", 2)
    whole, chunked = (train(case, chunks=chunks, batch_norm="none") for chunks in (1, CHUNKS))
    for what, found in chunked.items():
        assert_close(whole[what], found, what, METRIC_TOLERANCE if what == "metrics" else TOLERANCE)


def test_methods_whose_chains_are_images_say_why_they_refuse() -> None:
    refusing = {name: method.not_in_chunks for name, method in METHODS.items() if method.not_in_chunks}
    assert refusing.keys() == {"ebclr", "jem", "vem-image"}
    assert set(refusing.values()) == {"its chains move through the network within a step, all of a batch at once"}


def new_encoder(batch_norm: str = "global") -> Any:
    torch.manual_seed(0)
    return small_encoder(batch_norm=batch_norm).double()


def test_batch_norm_sees_a_chunk_and_moves_its_statistics_once_for_it() -> None:
    """The embeddings of all chunks, made one after the other, with one graph."""
    images = torch.randn(12, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weights = torch.randn(12, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    found, expected = new_encoder(), new_encoder()
    embeddings = torch.empty(12, 16, dtype=torch.float64)
    for first in range(3):
        embeddings[first::3] = expected(images[first::3])
    for output in (pass_in_chunks(found, images, 3), embeddings):
        (output.sin() * weights).sum().backward()
        torch.testing.assert_close(output, embeddings, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(found.state_dict(), expected.state_dict(), rtol=0, atol=0)
    for one, other in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=TOLERANCE, atol=TOLERANCE)


def test_both_passes_of_a_chunk_draw_the_same_random_numbers() -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5))
    images = torch.ones(8, 1, 4, 4, requires_grad=True)
    output = pass_in_chunks(network, images, 2)
    output.sum().backward()
    assert images.grad is not None
    assert torch.equal(images.grad.flatten(1), output.detach())  # the slope of dropout is its mask
    assert 0 < (output == 0).sum() < output.numel()


def test_chunks_that_do_not_divide_a_pass_are_refused() -> None:
    with pytest.raises(ValueError, match="num_chunks: must divide the 8 images of a pass, got 3"):
        pass_in_chunks(torch.nn.Flatten(), torch.ones(8, 1, 2, 2), 3)


class Peak(TorchDispatchMode):
    """Counts the bytes of the tensors that operations have made and that are still there."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(output):
            if isinstance(tensor, Tensor) and (storage := tensor.untyped_storage()) not in self._seen:
                self._seen.add(storage)
                self.now += storage.nbytes()
                self.most = max(self.most, self.now)
                weakref.finalize(storage, self._gone, storage.nbytes())
        return output

    def _gone(self, size: int) -> None:
        self.now -= size


def peak(name: str, chunks: int) -> int:
    """Return the most bytes of a step's tensors beside the views."""
    torch.manual_seed(0)
    encoder = build_encoder("small", in_channels=1, width=8, batch_norm="none")
    method = METHODS[name](METHODS[name].Config(**SMALL.get(name, {})), encoder)
    method.num_chunks, method.diagnosing = chunks, False
    index = torch.arange(64)
    batch = Batch(torch.randn(2, 64, 1, 16, 16), index, index, torch.empty(0, 1, 16, 16))
    with Peak() as bytes_of:
        method(batch, torch.Generator()).loss.backward()
    return bytes_of.most


@pytest.mark.parametrize("name", ["simclr", "moco", "byol"])
def test_the_memory_of_activations_falls_with_the_number_of_chunks(name: str) -> None:
    whole, chunked = peak(name, 1), peak(name, 8)
    assert chunked < whole / 5, (whole, chunked)
