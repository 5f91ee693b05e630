"""SimCLR: one pass, the paper's loss, and learning."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import Tensor

from energy_contrast.bounds import donsker_varadhan, fenchel_legendre, nwj
from energy_contrast.catalog import METHODS
from energy_contrast.contrastive.settings import Objective, SimclrConfig
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


OTHERS = {
    "donsker-varadhan": donsker_varadhan,
    "fenchel-legendre": fenchel_legendre,
    "nwj": nwj,
    "flatnce": flat_nce,
}
NO_ESTIMATES = {"flatnce"}  # of the information: its value is 1


@pytest.mark.parametrize(("objective", "loss"), OTHERS.items())
def test_another_objective_is_that_bound_of_the_same_pairs(objective: str, loss: Callable[..., Tensor]) -> None:
    method, batch = build(temperature=0.3, objective=objective), random_batch(8)
    pairs = pair_similarities(*method.head(method.encoder(batch.views.flatten(0, 1))).chunk(2))
    output = method(batch, torch.Generator())
    expected = loss(*pairs, temperature=0.3)
    assert_same_loss(output.loss, expected, method)
    torch.testing.assert_close(output.metrics["info_nce"], info_nce(*pairs, temperature=0.3).detach())
    known = ("mutual_information" in output.metrics) != (objective in NO_ESTIMATES)
    assert known, f"{objective}: _BOUNDS in contrastive/simclr.py or NO_ESTIMATES in this file must have it"
    if objective not in NO_ESTIMATES:
        torch.testing.assert_close(output.metrics["mutual_information"], -expected.detach())


@pytest.mark.parametrize("objective", sorted({*get_args(Objective), *OBJECTIVES}))
def test_an_objective_has_a_name_a_loss_an_expected_value_a_help_and_a_line_on_the_page(objective: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "methods" / "simclr.md").read_text(encoding="utf-8")
    told = next(each for each in fields(SimclrConfig) if each.name == "objective").metadata["doc"]
    by_hand = {"infonce", "temperature-free"}
    tests = "".join((Path(__file__).parents[1] / f"test_{name}.py").read_text("utf-8") for name in ("losses", "bounds"))
    function = OTHERS.get(objective, info_nce).__name__
    missing = {
        "Objective in contrastive/settings.py": objective in get_args(Objective),
        "OBJECTIVES in contrastive/simclr.py": objective in {*OBJECTIVES, *by_hand},
        "OTHERS in this file": objective in {*OTHERS, *by_hand},
        "its equation in tests/methods/test_losses.py or test_bounds.py": f"{function}(" in tests,
        "the help of SimclrConfig.objective": objective in told,
        "docs/methods/simclr.md": f"`{objective}`" in page,
    }
    lacking = [place for place, is_there in missing.items() if not is_there]
    assert not lacking, f"still to come: {'; '.join(lacking)}"


@pytest.mark.parametrize("objective", get_args(Objective))
def test_a_temperature_that_may_be_controlled_divides_differences_of_similarities(objective: str) -> None:
    """Else it is more than a scale of the loss, and SimclrConfig.problems must refuse to control it."""
    if SimclrConfig(objective=objective, ess_target=0.5).problems():
        return
    method, gradients = build(objective=objective), []
    pairs = torch.rand(16, generator=torch.Generator().manual_seed(0)), torch.linspace(-1, 1, 16 * 14).view(16, 14)
    for shift, temperature in ((0.0, 0.2), (0.4, 0.2), (0.0, 0.3)):
        method.config = replace(method.config, temperature=temperature)
        shifted = [(each + shift).requires_grad_() for each in pairs]
        gradients.append(torch.autograd.grad(method.contrast(torch.rand(16, 4), *shifted).loss, shifted[1])[0])
    plain, other_level, other_temperature = gradients
    place = f"{objective}: say in SimclrConfig.problems why its temperature cannot be controlled"
    assert torch.allclose(plain, other_level, atol=1e-5), place
    assert not torch.allclose(plain, other_temperature, atol=1e-5), place


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
