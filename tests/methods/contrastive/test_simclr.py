"""SimCLR: one pass, the paper's loss, and learning."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from energy_contrast.bounds import donsker_varadhan, fenchel_legendre, nwj
from energy_contrast.contrastive.simclr import Simclr, SimclrConfig
from energy_contrast.losses import flat_nce, info_nce, nt_xent, pair_similarities
from energy_contrast.networks import build_encoder

from ..conftest import random_batch, unlabelled


def build(**settings: object) -> Simclr:
    torch.manual_seed(0)
    return Simclr(SimclrConfig(**settings), build_encoder("small", in_channels=1, width=4))


def test_loss_is_nt_xent_of_the_projections_of_both_views() -> None:
    method, batch = build(temperature=0.3), random_batch(8, dtype=torch.float32)
    projection = method.head(method.encoder(batch.views.flatten(0, 1)))
    output = method(batch, torch.Generator())
    torch.testing.assert_close(output.loss, nt_xent(projection[:8], projection[8:], temperature=0.3))
    torch.testing.assert_close(output.metrics["info_nce"], output.loss.detach())


@pytest.mark.parametrize(
    ("objective", "loss"),
    [
        ("donsker-varadhan", donsker_varadhan),
        ("fenchel-legendre", fenchel_legendre),
        ("nwj", nwj),
        ("flatnce", flat_nce),
    ],
)
def test_another_objective_is_that_bound_of_the_same_pairs(objective: str, loss: Callable[..., Tensor]) -> None:
    method, batch = build(temperature=0.3, objective=objective), random_batch(8, dtype=torch.float32)
    pairs = pair_similarities(*method.head(method.encoder(batch.views.flatten(0, 1))).chunk(2))
    output = method(batch, torch.Generator())
    expected = loss(*pairs, temperature=0.3)
    torch.testing.assert_close(output.loss, expected)
    torch.testing.assert_close(output.metrics["info_nce"], info_nce(*pairs, temperature=0.3).detach())
    if objective == "flatnce":
        assert "mutual_information" not in output.metrics  # its value is 1
    else:
        torch.testing.assert_close(output.metrics["mutual_information"], -expected.detach())
    weights = list(method.parameters())
    found, wanted = (torch.autograd.grad(value, weights, retain_graph=True) for value in (output.loss, expected))
    torch.testing.assert_close(found, wanted)


def test_both_views_go_through_the_encoder_in_one_pass_and_keep_their_memory_format() -> None:
    torch.manual_seed(0)
    method = Simclr(SimclrConfig(), build_encoder("small", in_channels=3, width=4))
    inputs = []
    method.encoder.register_forward_pre_hook(lambda module, arguments: inputs.append(arguments[0]))
    images = torch.randn(16, 3, 8, 8).to(memory_format=torch.channels_last)
    method(unlabelled(images.unflatten(0, (2, 8))), torch.Generator())
    assert [i.shape for i in inputs] == [(16, 3, 8, 8)]
    assert inputs[0].is_contiguous(memory_format=torch.channels_last)
    assert inputs[0].data_ptr() == images.data_ptr()


def test_gradients_reach_both_views() -> None:
    method, batch = build(), random_batch(8, dtype=torch.float32)
    views = batch.views.requires_grad_()
    method(batch, torch.Generator()).loss.backward()
    assert (views.grad.abs().amax(dim=(2, 3, 4)) > 0).all()


def test_bfloat16_autocast_stays_close_and_keeps_similarities_in_float32() -> None:
    method, batch = build(), random_batch(32, dtype=torch.float32)
    exact = method(batch, torch.Generator())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = method(batch, torch.Generator())
        projection = method.head(method.encoder(batch.views.flatten(0, 1)))
    assert projection.dtype == torch.bfloat16
    assert rough.loss.dtype == torch.float32
    # Equal to float32 arithmetic on bfloat16 projections, to rounding; bfloat16 similarities would miss by 1e-3.
    torch.testing.assert_close(rough.loss, nt_xent(*projection.float().chunk(2), temperature=0.2))
    assert rough.loss.item() == pytest.approx(exact.loss.item(), rel=0.02)


@pytest.mark.parametrize(("hidden", "expected"), [(0, 16), (24, 24)])
def test_the_heads_hidden_layer_is_as_wide_as_the_embedding_unless_said(hidden: int, expected: int) -> None:
    method = build(projection_hidden_size=hidden, projection_size=6)
    assert [(m.in_features, m.out_features) for m in method.head if isinstance(m, nn.Linear)] == [
        (16, expected),
        (expected, 6),
    ]


def test_the_heads_batch_norm_is_a_setting() -> None:
    for wanted in (False, True):
        head = build(projection_batch_norm=wanted).head
        assert any(isinstance(m, nn.BatchNorm1d) for m in head) == wanted
