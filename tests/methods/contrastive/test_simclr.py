"""SimCLR: one pass, the paper's loss, and learning."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from energy_contrast.bounds import donsker_varadhan, fenchel_legendre, nwj
from energy_contrast.contrastive.simclr import Simclr, SimclrConfig
from energy_contrast.losses import flat_nce, info_nce, nt_xent, pair_similarities
from energy_contrast.method import Batch, Method
from energy_contrast.networks import build_encoder

from ..conftest import DIAGNOSTICS


def build(**settings: object) -> Simclr:
    torch.manual_seed(0)
    return Simclr(SimclrConfig(**settings), build_encoder("small", in_channels=1, width=4))


def make_batch(views: Tensor) -> Batch:
    size = views.shape[1]
    return Batch(views, torch.full((size,), -1), torch.arange(size), views.new_empty(0, *views.shape[2:]))


def random_batch(size: int = 8) -> Batch:
    return make_batch(torch.randn(2, size, 1, 8, 8, generator=torch.Generator().manual_seed(1)))


def train_on_two_clusters(method: Method, num_steps: int = 30) -> list[float]:
    """Return info_nce of every step on noisy views of images from two clusters."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(2, 1, 8, 8, generator=generator)
    optimizer = torch.optim.Adam(method.parameters(), lr=3e-3)
    values = []
    for _ in range(num_steps):
        own = torch.randn(16, 1, 8, 8, generator=generator)
        images = centres[torch.arange(16) % 2] + own
        views = images + 0.2 * torch.randn(2, 16, 1, 8, 8, generator=generator)
        output = method(make_batch(views), generator)
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        values.append(output.metrics["info_nce"].item())
    return values


def test_loss_is_nt_xent_of_the_projections_of_both_views() -> None:
    method, batch = build(temperature=0.3), random_batch()
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
    method, batch = build(temperature=0.3, objective=objective), random_batch()
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
    method(make_batch(images.unflatten(0, (2, 8))), torch.Generator())
    assert [i.shape for i in inputs] == [(16, 3, 8, 8)]
    assert inputs[0].is_contiguous(memory_format=torch.channels_last)
    assert inputs[0].data_ptr() == images.data_ptr()


def test_gradients_reach_both_views() -> None:
    method, batch = build(), random_batch()
    views = batch.views.requires_grad_()
    method(batch, torch.Generator()).loss.backward()
    assert (views.grad.abs().amax(dim=(2, 3, 4)) > 0).all()


def test_costly_metrics_come_only_while_diagnosing_and_do_not_change_the_loss() -> None:
    method, batch = build(), random_batch()
    with_diagnostics = method(batch, torch.Generator())
    method.diagnosing = False
    without = method(batch, torch.Generator())
    assert set(with_diagnostics.metrics) == {"info_nce"} | DIAGNOSTICS
    assert set(without.metrics) == {"info_nce"}
    torch.testing.assert_close(with_diagnostics.loss, without.loss, rtol=0, atol=0)


def test_bfloat16_autocast_stays_close_and_keeps_similarities_in_float32() -> None:
    method, batch = build(), random_batch(32)
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


def test_thirty_steps_on_two_clusters_lower_info_nce() -> None:
    values = train_on_two_clusters(build())
    assert sum(values[-5:]) / 5 < values[0] - 0.5
