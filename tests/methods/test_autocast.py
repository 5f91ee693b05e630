"""Under the caller's autocast, losses work in float32 on projections that the networks gave in 16 bits."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from small_methods import SMALL, draw_images, small_encoder, small_method
from torch import Tensor, nn

from energy_contrast.catalog import METHODS
from energy_contrast.method import Batch, Method

SIZE = 12
SETTINGS: dict[str, dict[str, Any]] = {
    **{name: SMALL.get(name, {}) for name in METHODS},
    "moco": {"queue_size": 20, "batch_norm_groups": 2, "temperature": 0.3},  # else the positives take nearly all
    "lejepa": {"num_slices": 2, "regularizer_weight": 1.0},  # over many slices, errors of rounding cancel out
    "supervised": {"objective": "supcon"},
}


def build(name: str) -> Method:
    method = small_method(name, SETTINGS[name], lambda: small_encoder(batch_norm="none"))
    method.start(draw_images)
    return method


def last_networks(method: Method) -> list[nn.Module]:
    names = ("head", "key_head", "target_head", "predictor", "classifier")
    return [getattr(method, name) for name in names if hasattr(method, name)]


def loss_of(method: Method, hook: Any) -> Tensor:
    views = torch.randn(method.num_views, SIZE, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    proposals = torch.randn(method.num_proposals(SIZE), 1, 8, 8, generator=torch.Generator().manual_seed(2))
    handles = [network.register_forward_hook(hook) for network in last_networks(method)]
    loss = method(Batch(views, torch.arange(SIZE) % 3, torch.arange(SIZE), proposals), torch.Generator().manual_seed(3))
    for handle in handles:
        handle.remove()
    return loss.loss


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, torch.bfloat16) for name in SETTINGS), ("simclr", torch.float16), ("ebclr", torch.float16)],
)
def test_the_loss_under_autocast_is_the_float32_loss_of_its_projections(name, dtype, monkeypatch):
    """The projections of a pass under autocast take the places of those of a pass that knows no autocast at all."""
    given: list[Tensor] = []
    method = build(name)
    with torch.autocast("cpu", dtype=dtype):
        rough = loss_of(method, lambda module, arguments, result: given.append(result.detach()))
    assert rough.dtype == torch.float32
    assert any(result.dtype == dtype for result in given)
    left = iter(given)

    def replace_rough(module: nn.Module, arguments: tuple[Tensor], result: Tensor) -> Tensor | None:
        earlier = next(left)  # float32 in the moves of chains, which have a precision of their own
        return earlier.float() if earlier.dtype == dtype else None

    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    exact = loss_of(build(name), replace_rough)
    assert next(left, None) is None
    torch.testing.assert_close(rough, exact, rtol=1e-5, atol=1e-6)
