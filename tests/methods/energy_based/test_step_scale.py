"""The scale of a sampler's step: half the scale is half the step size, and it is saved with the weights."""

import pytest
import torch
from small_methods import SMALL
from torch import Tensor

from energy_contrast.catalog import METHODS
from energy_contrast.method import Batch, Method, PixelRange, Progress
from energy_contrast.sampling_method import SamplingMethod

from ..conftest import built, draw, small_encoder

SAMPLING = ("ebclr", "jem", "vem-langevin", "vem-svgd", "vem-image")


def build(name: str, step_size: float) -> Method:
    classes = (4,) if METHODS[name].needs_labels else ()
    method = built(METHODS[name], small_encoder(batch_norm="none"), *classes, **SMALL[name], step_size=step_size)
    method.pixel_range = PixelRange((-2.0,), (2.0,))
    method.start(draw)
    return method


def batch_of(method: Method) -> Batch:
    generator = torch.Generator().manual_seed(1)
    views = draw(16, generator).view(2, 8, 1, 8, 8)
    proposals = draw(method.num_proposals(8), generator)
    return Batch(views[: method.num_views], torch.arange(8) % 4, torch.arange(8), proposals)


def after_a_step(method: Method) -> dict[str, Tensor]:
    """Return the loss and everything that the sampler moved."""
    output = method(batch_of(method), torch.Generator().manual_seed(2))
    method.after_step(Progress(1, 1, 0))
    memories = {f"{name}.{key}": v for name, m in method.memories.items() for key, v in m.state_dict().items()}
    buffers = {name: value for name, value in method.named_buffers() if name != "step_scale"}
    return {"loss": output.loss.detach(), **memories, **buffers}


def test_every_method_that_samples_has_a_scale_and_no_other_has() -> None:
    assert {name for name, method in METHODS.items() if issubclass(method, SamplingMethod)} == set(SAMPLING)


@pytest.mark.parametrize("name", SAMPLING)
def test_a_quarter_of_the_scale_is_a_quarter_of_the_step_bit_for_bit(name: str) -> None:
    scaled, small, large = build(name, 0.5), build(name, 0.125), build(name, 0.5)
    scaled.scale_step(0.5)
    scaled.scale_step(0.5)
    found = after_a_step(scaled)
    torch.testing.assert_close(found, after_a_step(small), rtol=0, atol=0)
    assert any(not torch.equal(found[key], value) for key, value in after_a_step(large).items())


@pytest.mark.parametrize("name", SAMPLING)
def test_the_scale_goes_with_the_weights(name: str) -> None:
    first, second = build(name, 0.5), build(name, 0.5)
    first.scale_step(0.25)
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(after_a_step(first), after_a_step(second), rtol=0, atol=0)
    assert second.state_dict()["step_scale"] == 0.25
