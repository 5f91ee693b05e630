"""Every method of the catalogue keeps the contract."""

import dataclasses

import pytest
import torch

from energy_contrast.catalog import METHODS
from energy_contrast.method import Batch, Method, Progress
from energy_contrast.networks import build_encoder


def build(name: str) -> Method:
    torch.manual_seed(0)
    method = METHODS[name](METHODS[name].Config(), build_encoder("small", in_channels=1, width=4))
    method.start(lambda count, generator: torch.randn(count, 1, 8, 8, generator=generator))
    return method


def draw_batch(method: Method, size: int = 8) -> Batch:
    views = torch.randn(method.num_views, size, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    proposals = torch.zeros(method.num_proposals(size), 1, 8, 8)
    return Batch(views, torch.full((size,), -1), torch.arange(size), proposals)


@pytest.mark.parametrize("name", METHODS)
def test_a_step_gives_a_scalar_loss_with_gradients_for_every_parameter_that_learns(name: str) -> None:
    method = build(name)
    batch = draw_batch(method)
    method(batch, torch.Generator()).loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.parameters() if p.requires_grad)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("diagnosing", [False, True])
def test_metrics_are_detached_scalars_and_hold_info_nce(name: str, diagnosing: bool) -> None:
    method = build(name)
    method.diagnosing = diagnosing
    metrics = method(draw_batch(method), torch.Generator()).metrics
    assert "info_nce" in metrics
    assert all(v.shape == () and not v.requires_grad and v.isfinite() for v in metrics.values())


@pytest.mark.parametrize("name", METHODS)
def test_equal_state_and_generator_give_equal_bits(name: str) -> None:
    outputs = []
    for _ in range(2):
        method = build(name)
        output = method(draw_batch(method), torch.Generator().manual_seed(3))
        method.after_step(Progress(step=1, num_steps=10, epoch=0))
        outputs.append((output.loss, output.metrics, method.state_dict()))
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=0)


@pytest.mark.parametrize("name", METHODS)
def test_embed_is_the_encoder_without_the_head(name: str) -> None:
    method = build(name).eval()
    images = draw_batch(method).views[0]
    torch.testing.assert_close(method.embed(images), method.encoder(images), rtol=0, atol=0)


@pytest.mark.parametrize("name", METHODS)
def test_settings_are_frozen_and_documented(name: str) -> None:
    config = METHODS[name].Config
    assert config.__dataclass_params__.frozen
    assert all(f.metadata["doc"] for f in dataclasses.fields(config))


def test_keys_are_lower_case_class_names() -> None:
    assert all(key.replace("-", "") == cls.__name__.lower() for key, cls in METHODS.items())
