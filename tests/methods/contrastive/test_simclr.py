"""SimCLR: one pass, the paper's loss, and learning."""

from collections.abc import Callable
from typing import get_args

import pytest
import torch
from torch import Tensor

from energy_contrast.bounds import donsker_varadhan, fenchel_legendre, nwj
from energy_contrast.catalog import METHODS
from energy_contrast.contrastive.settings import Objective
from energy_contrast.contrastive.simclr import OBJECTIVES, PairMethod, Simclr
from energy_contrast.losses import flat_nce, info_nce, nt_xent, pair_similarities, temperature_free
from energy_contrast.method import Method

from ..conftest import assert_same_loss, built, random_batch, small_encoder, unlabelled


def build(**settings: object) -> Simclr:
    return built(Simclr, **settings)


def test_loss_is_nt_xent_of_the_projections_of_both_views() -> None:
    method, batch = build(temperature=0.3), random_batch(8)
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
    method, batch = build(temperature=0.3, objective=objective), random_batch(8)
    pairs = pair_similarities(*method.head(method.encoder(batch.views.flatten(0, 1))).chunk(2))
    output = method(batch, torch.Generator())
    expected = loss(*pairs, temperature=0.3)
    assert_same_loss(output.loss, expected, method)
    torch.testing.assert_close(output.metrics["info_nce"], info_nce(*pairs, temperature=0.3).detach())
    if objective == "flatnce":
        assert "mutual_information" not in output.metrics  # its value is 1
    else:
        torch.testing.assert_close(output.metrics["mutual_information"], -expected.detach())


def test_every_objective_has_a_loss() -> None:
    assert set(get_args(Objective)) == {"infonce", "temperature-free", *OBJECTIVES}


def test_the_temperature_free_loss_reads_no_temperature() -> None:
    outputs = []
    for temperature in (0.1, 0.5):
        method, batch = build(temperature=temperature, objective="temperature-free"), random_batch(8)
        outputs.append(method(batch, torch.Generator()))
    pairs = pair_similarities(*method.head(method.encoder(batch.views.flatten(0, 1))).chunk(2))
    assert_same_loss(outputs[1].loss, temperature_free(*pairs), method)
    torch.testing.assert_close(outputs[0].loss, outputs[1].loss, rtol=0, atol=0)
    torch.testing.assert_close(outputs[1].metrics["info_nce"], info_nce(*pairs, temperature=0.5).detach())


@pytest.mark.parametrize("kind", [kind for kind in METHODS.values() if issubclass(kind, PairMethod)])
@pytest.mark.parametrize("num_images", [11, None])
def test_every_pair_method_adds_the_spread_of_first_views_with_other_images_second(
    kind: type[PairMethod], num_images: int | None
) -> None:
    batch, outputs, gradients = random_batch(5), [], []
    for weight in (0.0, 30.0):
        method: Method = built(kind, spread_weight=weight)
        method.num_images = num_images
        outputs.append(method(batch, torch.Generator()))
        gradients.append(torch.autograd.grad(outputs[-1].loss, list(method.head.parameters())))
    u, v = (
        view / view.norm(dim=1, keepdim=True)
        for view in method.head(method.encoder(batch.views.flatten(0, 1))).chunk(2)
    )
    target = 0.0 if num_images is None else -0.1
    spread = sum((u[i] @ v[j] - target) ** 2 for i in range(5) for j in range(5) if i != j) / 20
    torch.testing.assert_close(outputs[1].loss - outputs[0].loss, 30 * spread)
    torch.testing.assert_close(outputs[1].metrics["negative_spread"], spread.detach())
    assert set(outputs[1].metrics) - set(outputs[0].metrics) == {"negative_spread"}
    added = torch.autograd.grad(30 * spread, list(method.head.parameters()))
    torch.testing.assert_close([b - a for a, b in zip(*gradients, strict=True)], list(added), rtol=1e-8, atol=1e-12)


def test_both_views_go_through_the_encoder_in_one_pass_and_keep_their_memory_format() -> None:
    method, inputs = built(Simclr, small_encoder(in_channels=3)).float(), []
    method.encoder.register_forward_pre_hook(lambda module, arguments: inputs.append(arguments[0]))
    images = torch.randn(16, 3, 8, 8).to(memory_format=torch.channels_last)
    method(unlabelled(images.unflatten(0, (2, 8))), torch.Generator())
    assert [i.shape for i in inputs] == [(16, 3, 8, 8)]
    assert inputs[0].is_contiguous(memory_format=torch.channels_last)
    assert inputs[0].data_ptr() == images.data_ptr()
