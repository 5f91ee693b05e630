"""Batch norm over the global batch against torch's on the whole batch, alone and on two ranks."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from energy_contrast import parallel
from energy_contrast.networks.batch_norm import (
    GlobalBatchNorm,
    GlobalBatchNorm1d,
    GlobalBatchNorm2d,
    check_groups,
    set_groups,
)
from energy_contrast.networks.encoders import build_encoder
from energy_contrast.networks.heads import ProjectionHead

NUM_RANKS = 2
MAPS, VECTORS = (8, 5, 3, 4), (8, 5)
KINDS = {"maps": (GlobalBatchNorm2d, nn.BatchNorm2d, MAPS), "vectors": (GlobalBatchNorm1d, nn.BatchNorm1d, VECTORS)}
CASES = [("maps", "contiguous"), ("maps", "channels_last"), ("vectors", "contiguous")]

Run = dict[str, Any]


def draw(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def prepare(norm: nn.Module, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Give scale, shift and running statistics values that show whether they are used."""
    norm.to(dtype)
    with torch.no_grad():
        norm.weight.copy_(draw((5,), 1))
        norm.bias.copy_(draw((5,), 2))
        norm.running_mean.copy_(draw((5,), 3))
        norm.running_var.copy_(draw((5,), 4).exp())
    return norm


def pass_through(norm: nn.Module, x: Tensor, pull: Tensor) -> Run:
    """Return output, gradients and buffers of a forward and a backward pass that starts from ``pull``."""
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    y = norm(x)
    y.backward(pull)
    gradients = {"x.grad": x.grad, "weight.grad": norm.weight.grad.clone(), "bias.grad": norm.bias.grad.clone()}
    return {"y": y.detach(), **gradients, **{name: value.clone() for name, value in norm.named_buffers()}}


def inputs(shape: tuple[int, ...], layout: str) -> tuple[Tensor, Tensor]:
    x, pull = 3 + 2 * draw(shape, 5), draw(shape, 6)
    if layout == "channels_last":
        return x.to(memory_format=torch.channels_last), pull.to(memory_format=torch.channels_last)
    return x, pull


def slow_groups(norm: nn.Module, x: Tensor, pull: Tensor, groups: int) -> Run:
    """Return what torch's batch norm gives when each group passes alone, its statistics starting afresh."""
    parts = []
    for own_x, own_pull in zip(x.chunk(groups), pull.chunk(groups), strict=True):
        alone = copy.deepcopy(norm)
        parts.append(pass_through(alone, own_x, own_pull))
    expected = {name: torch.cat([part[name] for part in parts]) for name in ("y", "x.grad")}
    expected |= {name: sum(part[name] for part in parts) for name in ("weight.grad", "bias.grad")}
    expected |= {name: sum(part[name] for part in parts) / groups for name in ("running_mean", "running_var")}
    return expected | {"num_batches_tracked": torch.tensor(1)}


def be_a_rank(rank: int, num_ranks: int) -> dict[str, Run]:
    results = {}
    for kind, layout in CASES:
        ours, _, shape = KINDS[kind]
        for groups in (1, 2, 4):
            norm = prepare(ours(5))
            set_groups(norm, groups)
            x, pull = (parallel.own_share(whole) for whole in inputs(shape, layout))
            results[f"{kind} {layout} {groups}"] = pass_through(norm, x, pull)
    norm = prepare(GlobalBatchNorm2d(5), torch.float32)
    x, pull = (parallel.own_share(whole).bfloat16() for whole in inputs(MAPS, "channels_last"))
    results["bfloat16"] = pass_through(norm, x, pull)
    vectors = prepare(GlobalBatchNorm1d(5))
    results["one vector a rank"] = pass_through(
        vectors, draw((2, 5), 5)[rank : rank + 1], draw((2, 5), 6)[rank : rank + 1]
    )
    evaluated = prepare(GlobalBatchNorm2d(5)).eval()
    if rank == 0:  # an exchange would wait for the other rank for ever
        results["eval"] = {"y": evaluated(draw(MAPS, 5)).detach()}
    return results


@pytest.fixture(scope="module")
def ranks(run_ranks: Callable[[str, int], list[dict[str, Run]]]) -> list[dict[str, Run]]:
    return run_ranks(__file__, NUM_RANKS)


def together(ranks: list[dict[str, Run]], case: str) -> Run:
    """Put the ranks' passes together: outputs side by side, gradients of parameters summed, buffers the same."""
    runs = [results[case] for results in ranks]
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        assert all(torch.equal(run[name], runs[0][name]) for run in runs), name
    joined = {name: torch.cat([run[name] for run in runs]) for name in ("y", "x.grad")}
    return runs[0] | joined | {name: sum(run[name] for run in runs) for name in ("weight.grad", "bias.grad")}


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("kind", "layout"), CASES)
def test_groups_alone_and_on_two_ranks_are_torchs_batch_norm_on_each_group(ranks, kind, layout, groups):
    ours, torchs, shape = KINDS[kind]
    expected = slow_groups(prepare(torchs(5)), *inputs(shape, layout), groups)
    alone = prepare(ours(5))
    set_groups(alone, groups)
    torch.testing.assert_close(pass_through(alone, *inputs(shape, layout)), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(together(ranks, f"{kind} {layout} {groups}"), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_alone_it_is_torchs_batch_norm_bit_for_bit(kind: str, training: bool) -> None:
    ours, torchs, shape = KINDS[kind]
    runs = [
        pass_through(prepare(norm(5), torch.float32).train(training), draw(shape, 5).float(), draw(shape, 6).float())
        for norm in (ours, torchs)
    ]
    torch.testing.assert_close(*runs, rtol=0, atol=0)


@pytest.mark.parametrize("groups", [1, 2])
def test_bfloat16_keeps_float32_statistics_and_layout_of_ranks_and_of_groups(ranks, groups):
    x, pull = (whole.bfloat16() for whole in inputs(MAPS, "channels_last"))
    if groups == 1:
        run = together(ranks, "bfloat16")
    else:
        norm = prepare(GlobalBatchNorm2d(5), torch.float32)
        set_groups(norm, groups)
        run = pass_through(norm, x, pull)
        assert run["x.grad"].is_contiguous(memory_format=torch.channels_last)
    exact = slow_groups(prepare(nn.BatchNorm2d(5)), x.double(), pull.double(), groups)
    assert run["y"].dtype == run["x.grad"].dtype == torch.bfloat16
    assert run["y"].is_contiguous(memory_format=torch.channels_last)
    for name in ("running_mean", "running_var", "weight.grad", "bias.grad"):
        torch.testing.assert_close(run[name], exact[name].float(), rtol=1e-5, atol=1e-5)
    for name in ("y", "x.grad"):
        torch.testing.assert_close(run[name].double(), exact[name], rtol=2**-7, atol=2**-7)


def test_one_value_a_rank_is_enough(ranks: list[dict[str, Run]]) -> None:
    expected = pass_through(prepare(nn.BatchNorm1d(5)), draw((2, 5), 5), draw((2, 5), 6))
    torch.testing.assert_close(together(ranks, "one vector a rank"), expected, rtol=1e-10, atol=1e-10)


def test_evaluation_exchanges_nothing_and_ignores_groups(ranks: list[dict[str, Run]]) -> None:
    expected = prepare(nn.BatchNorm2d(5)).eval()(draw(MAPS, 5)).detach()
    torch.testing.assert_close(ranks[0]["eval"]["y"], expected)
    grouped = prepare(GlobalBatchNorm2d(5)).eval()
    set_groups(grouped, 3)
    assert torch.equal(grouped(draw(MAPS, 5)), expected)


def test_groups_reach_every_norm_of_a_network() -> None:
    network = nn.Sequential(build_encoder("small", in_channels=1, width=4), ProjectionHead(16, 8, 4, batch_norm=True))
    set_groups(network, 4)
    norms = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    assert len(norms) == 10  # stem, two a block, two shortcuts, head
    assert all(isinstance(norm, GlobalBatchNorm) and norm.groups == 4 for norm in norms)


@pytest.mark.parametrize(
    ("groups", "batch_size", "num_ranks", "message"),
    [
        (8, 12, 1, "batch_norm_groups: must divide the global batch of 12 images, got 8; use 6"),
        (8, 12, 2, "batch_norm_groups: must divide the global batch of 12 images, got 8; use 6"),
        (8, 96, 3, "batch_norm_groups: must be a multiple of the number of workers, 3, got 8; use 6"),
        (2, 8, 4, "batch_norm_groups: must be a multiple of the number of workers, 4, got 2; use 1"),
    ],
)
def test_groups_that_do_not_fit_are_refused(groups: int, batch_size: int, num_ranks: int, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message + "$"):
        check_groups(groups, batch_size, num_ranks)


@pytest.mark.parametrize(
    ("groups", "shape", "said"),
    [
        (4, (4, 3, 1, 1), "a group has one value of each channel, and no spread, got 4"),
        (3, (8, 3, 1, 1), "must divide the global batch of 8 images, got 3; use 2"),
    ],
)
def test_a_pass_checks_its_groups(groups, shape, said):
    norm = GlobalBatchNorm2d(3)
    set_groups(norm, groups)
    norm(torch.randn(groups, 3, 1, 2))
    with pytest.raises(ValueError, match=f"batch_norm_groups: {said}"):
        norm(torch.randn(shape))
