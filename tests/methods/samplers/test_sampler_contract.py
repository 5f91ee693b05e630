"""What every sampler keeps: two pure functions, randomness as an argument, no trace on a network."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch._dynamo.config
import torch.nn.functional as F
from torch import Tensor, nn

from energy_contrast.samplers import Sampler, Staged, feature_langevin, multistage_sgld, proximal_sgld, svgd


class Case(NamedTuple):
    """A sampler in use.

    Attributes:
        sampler: The sampler.
        position: (N, ...) float64, where it starts.
        context: What its steps are given.
        still: A sampler, a position and a context without gradient, on which no step moves when the noise is zero.
        network: What the sampler differentiates, if there is one.
    """

    sampler: Sampler
    position: Tensor
    context: Any
    still: tuple[Sampler, Tensor, Any]
    network: nn.Module | None = None


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unit(*shape: int, seed: int = 0) -> Tensor:
    return F.normalize(normal(*shape, seed=seed), dim=1)


def images(make: Callable[..., Sampler], context: Any, still_context: Any, **settings: float) -> Case:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(18, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    sampler = make(lambda x, _: network(x).squeeze(1), step_size=0.1, gradient_clamp=0.5, **settings)
    flat = make(lambda x, _: 0 * x.flatten(1).sum(1), step_size=0.1, gradient_clamp=0.5, **settings)
    position = normal(5, 2, 3, 3)
    return Case(sampler, position, context, (flat, position, still_context), network)


def particles(sampler: Sampler, *, alone: bool = False) -> Case:
    # Without gradient: all queries lie where the only particle is, or midway between particles and their opposites.
    still = (
        (sampler, unit(1, 4), unit(1, 4).expand(3, 4)) if alone else (sampler, unit(2, 4), torch.zeros(3, 4).double())
    )
    return Case(sampler, unit(6, 4), unit(7, 4, seed=1), still)


CASES: dict[str, Callable[[], Case]] = {
    "proximal_sgld": lambda: images(proximal_sgld, None, None, noise_std=0.3),
    "multistage_sgld": lambda: images(
        multistage_sgld,
        Staged(torch.tensor([0, 1, 2, 3, 4]), None),
        Staged(torch.zeros(5, dtype=torch.int32), None),
        sigma_min=0.1,
        sigma_max=0.4,
        noise_decay_count=3,
    ),
    "feature_langevin": lambda: particles(feature_langevin(temperature=0.2)),
    "feature_langevin, constant": lambda: particles(
        feature_langevin(temperature=0.2, step_schedule="constant", noise_schedule="constant")
    ),
    "feature_langevin, printed": lambda: particles(feature_langevin(temperature=0.2, update="printed")),
    "feature_langevin, momentum": lambda: particles(feature_langevin(temperature=0.2, momentum=0.9, weight_decay=0.1)),
    "svgd": lambda: particles(svgd(temperature=0.2)),
    "svgd, printed": lambda: particles(svgd(temperature=0.2, update="printed")),
    "svgd, rbf": lambda: particles(svgd(temperature=0.2, kernel="rbf"), alone=True),
    "svgd, momentum": lambda: particles(svgd(temperature=0.2, momentum=0.5, weight_decay=0.1)),
}

every_sampler = pytest.mark.parametrize("name", CASES)


def move(sampler: Sampler, position: Tensor, context: Any, num_steps: int = 3, noise: float = 1.0) -> Tensor:
    state = sampler.init(position)
    for step in range(num_steps):
        state, _ = sampler.step(state, context, noise * normal(*position.shape, seed=10 + step).to(position.dtype))
    return state.position


def in_dtype(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    return Staged(value.counts, in_dtype(value.context, dtype)) if isinstance(value, Staged) else value


@every_sampler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_step_keeps_shape_and_dtype_and_counts_itself(name: str, dtype: torch.dtype) -> None:
    case = CASES[name]()
    if case.network is not None:
        case.network.to(dtype)
    position = case.position.to(dtype)
    state = case.sampler.init(position)
    for done in range(1, 3):
        state, info = case.sampler.step(state, in_dtype(case.context, dtype), torch.zeros_like(position))
        assert (state.position.shape, state.position.dtype) == (position.shape, dtype)
        assert state.num_steps == done
        assert all(value.shape == position.shape[:1] and value.isfinite().all() for value in info)


@every_sampler
def test_a_step_changes_nothing_that_it_is_given(name: str) -> None:
    case = CASES[name]()
    position, noise = case.position.clone(), normal(*case.position.shape, seed=2)
    state = case.sampler.init(position)
    moved, _ = case.sampler.step(state, case.context, noise)
    again, _ = case.sampler.step(state, case.context, noise)
    assert torch.equal(position, case.position)
    assert torch.equal(noise, normal(*case.position.shape, seed=2))
    assert state.num_steps == 0
    assert not torch.equal(moved.position, position)
    assert torch.equal(moved.position, again.position)


@every_sampler
def test_without_gradient_and_without_noise_nothing_moves(name: str) -> None:
    sampler, position, context = CASES[name]().still
    torch.testing.assert_close(move(sampler, position, context, noise=0.0), position, rtol=0, atol=1e-15)


@every_sampler
def test_movement_is_how_far_the_coordinates_went(name: str) -> None:
    case = CASES[name]()
    state = case.sampler.init(case.position)
    moved, info = case.sampler.step(state, case.context, normal(*case.position.shape, seed=3))
    went = (moved.position - case.position).flatten(1)
    torch.testing.assert_close(info.movement, (went**2).mean(dim=1).sqrt())


@every_sampler
def test_grad_mode_does_not_matter_and_no_gradient_is_left(name: str) -> None:
    case = CASES[name]()
    moved = move(case.sampler, case.position, case.context)
    with torch.no_grad():
        quiet = move(case.sampler, case.position, case.context)
    leaf = case.position.clone().requires_grad_()
    attached = move(case.sampler, leaf * 1.0, case.context)
    assert torch.equal(moved, quiet)
    assert torch.equal(moved, attached)
    state, info = case.sampler.step(case.sampler.init(leaf), case.context, torch.zeros_like(case.position))
    results = (moved, quiet, attached, *info, *state)
    assert not any(result.requires_grad for result in results if result is not None)
    if case.network is not None:
        assert all(weight.grad is None and weight.requires_grad for weight in case.network.parameters())


@every_sampler
def test_a_step_compiles_in_one_graph(name: str) -> None:
    case = CASES[name]()
    if case.network is not None and not hasattr(torch._dynamo.config, "trace_autograd_ops"):
        pytest.skip("this torch cannot trace a gradient taken inside a step")
    settings = {"trace_autograd_ops": True} if case.network is not None else {}
    torch._dynamo.reset()
    with torch._dynamo.config.patch(settings):
        compiled = Sampler(case.sampler.init, torch.compile(case.sampler.step, fullgraph=True, backend="eager"))
        moved = move(compiled, case.position, case.context)
    torch.testing.assert_close(moved, move(case.sampler, case.position, case.context))
