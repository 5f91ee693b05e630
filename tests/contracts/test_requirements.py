"""What a method says that it needs, before it is built, is what the built method uses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_methods import NUM_CLASSES, SMALL, small_encoder, small_method
from torch import Tensor, nn

from energy_contrast.catalog import METHODS
from energy_contrast.chains.trace import TracedMethod
from energy_contrast.method import Batch, Method, PixelRange, Requirements
from energy_contrast.networks.batch_norm import groups_in
from energy_contrast.samplers import Staged
from energy_contrast.sampling_method import SamplingMethod

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in METHODS},
    "moco, whole batch": ("moco", {"batch_norm_groups": 1}),
    "moco, two groups": ("moco", {"batch_norm_groups": 2}),
    "simclr, batch norm in the head": ("simclr", {"projection_batch_norm": True}),
    "supervised, supcon": ("supervised", {"objective": "supcon"}),
    "ebclr, many new starts": ("ebclr", {"reinit_rate": 0.6}),
    "ebclr, uniform starts": ("ebclr", {"uniform_rate": 1.0}),
    "jem, flat minima": ("jem", {"variant": "sada"}),
    "vem-image, new starts": ("vem-image", {"reinit_rate": 0.35}),
    "vem-image, uniform starts": ("vem-image", {"reinit_rate": 0.35, "bank_init": "uniform"}),
}
BATCH_SIZE = 16


def config_of(case: str) -> Any:
    name, settings = CASES[case]
    return METHODS[name].Config(**{**SMALL.get(name, {}), **settings})


def build(case: str, batch_norm: str = "global") -> Method:
    return small_method(CASES[case][0], vars(config_of(case)), lambda: small_encoder(batch_norm=batch_norm))


def requirements(case: str, batch_size: int = BATCH_SIZE) -> Requirements:
    return METHODS[CASES[case][0]].requirements(config_of(case), batch_size)


def draw(count: int, generator: torch.Generator) -> Tensor:
    return torch.rand(count, 1, 8, 8, generator=generator) * 2 - 1


def measured(case: str, views: Tensor, num_proposals: int) -> dict[str, float]:
    """Return what the first step of a new method measures with as many proposals, all else being equal."""
    method = build(case)
    method.pixel_range = PixelRange((-1.0,), (1.0,))
    method.start(draw)
    generator = torch.Generator().manual_seed(1)
    index = torch.arange(BATCH_SIZE)
    batch = Batch(views, index % NUM_CLASSES, index, draw(num_proposals, generator))
    return {name: value.item() for name, value in method(batch, generator).metrics.items()}


@pytest.mark.parametrize("case", CASES)
def test_a_built_method_says_the_same_and_its_groups_are_those_of_the_encoders_batch_norms(case: str) -> None:
    method, groups = build(case), requirements(case).batch_norm_groups
    for batch_size in (1, 7, 16, 39):
        needed = requirements(case, batch_size)
        assert (method.num_views, method.num_proposals(batch_size)) == (needed.num_views, needed.num_proposals)
    assert groups_in(method.encoder) == {groups}
    assert groups_in(method) <= {1, groups}  # of heads too
    assert groups_in(build(case, batch_norm="none").encoder) == set()


@pytest.mark.filterwarnings("ignore:.*batch norm")
@pytest.mark.parametrize("case", CASES)
def test_a_step_uses_every_view_and_exactly_those_proposals(case: str) -> None:
    needed = requirements(case)
    views = draw(needed.num_views * BATCH_SIZE, torch.Generator().manual_seed(0)).unflatten(0, (-1, BATCH_SIZE))

    usual = measured(case, views, needed.num_proposals)
    for view in range(needed.num_views):
        changed = views.clone()
        changed[view] = changed[view].flip(0)  # the images of this view in another order
        assert measured(case, changed, needed.num_proposals) != usual
    if needed.num_proposals:
        for other in (needed.num_proposals - 1, needed.num_proposals + 1):
            with pytest.raises(ValueError, match="rows"):
                measured(case, views, other)


def test_labels_are_asked_for_by_those_that_read_them_and_nothing_is_built_to_say_so(monkeypatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a module was built")

    monkeypatch.setattr(nn.Module, "__init__", refuse)
    for case, (name, _) in CASES.items():
        assert requirements(case).labels == METHODS[name].needs_labels


def moved(method: SamplingMethod, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the energies of images, and where one step without noise takes them, against references that stay."""
    references = torch.randn(5, 128, generator=torch.Generator().manual_seed(3))
    sampler, context = (
        method.new_sampler(),
        Staged(torch.zeros(len(images)), references / references.norm(dim=1)[:, None]),
    )
    state, info = sampler.step(sampler.init(images), context, torch.zeros_like(images))
    return info.energy, state.position


@pytest.mark.parametrize("batch_norm", ["global", "none"])
@pytest.mark.parametrize("case", [case for case in CASES if requirements(case).images_alone])
def test_images_alone_means_that_neighbours_change_no_energy_and_batch_norm_breaks_it(
    case: str, batch_norm: str
) -> None:
    method = build(case, batch_norm)
    images = draw(8, torch.Generator().manual_seed(1))
    others = torch.cat([images[:4], draw(4, torch.Generator().manual_seed(2)) / 3])
    first, second = (
        [part[:4] for part in moved(method, batch)]
        for batch in (images, others)  # energies, positions
    )
    if batch_norm == "none":
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6)
    else:
        for one, other in zip(first, second, strict=True):
            assert (one - other).abs().max() > 1e-3


def test_methods_whose_chains_are_images_want_images_alone_and_no_other_does() -> None:
    alone = {CASES[case][0] for case in CASES if requirements(case).images_alone}
    sampling = {name: method for name, method in METHODS.items() if issubclass(method, SamplingMethod)}
    moving_images = {name for name in sampling if issubclass(sampling[name], TracedMethod)}
    assert alone == moving_images
    assert alone < sampling.keys()
