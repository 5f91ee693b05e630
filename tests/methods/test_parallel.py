"""Gathering and sharing, alone and on three ranks."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from energy_contrast import parallel

NUM_RANKS = 3


def whole(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def loss_of(rows: Tensor) -> Tensor:
    """Return a loss that ties every row to every other: the sum of exp of all scalar products."""
    return (rows @ rows.T).exp().sum()


def gradient_through_gather(rows: Tensor, weight: float) -> Tensor:
    share = parallel.own_share(rows).clone().requires_grad_()
    (weight * loss_of(parallel.gather(share))).backward()
    return share.grad


def error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except (ValueError, RuntimeError) as error:
        return str(error)
    return ""


def be_a_rank(rank: int, num_ranks: int) -> dict[str, Any]:
    views, rows = whole(2, 6, 4), whole(6, 4) / 4
    channels_last = whole(3, 2, 4, 4).to(memory_format=torch.channels_last)
    noise = torch.randn(6, generator=torch.Generator().manual_seed(3))
    second = parallel.own_share(rows).clone().requires_grad_()
    (first_order,) = torch.autograd.grad(loss_of(parallel.gather(second)), second, create_graph=True)
    return {
        "rank": (parallel.rank(), parallel.world_size()),
        "share": parallel.own_share(views, dim=1),
        "gathered views": parallel.gather(parallel.own_share(views, dim=1), dim=1),
        "gathered integers": parallel.gather(torch.tensor([rank, 10 + rank])),
        "gathered channels_last": parallel.gather(channels_last[rank : rank + 1]),
        "noise": parallel.own_share(noise),
        "gradient of the same loss": gradient_through_gather(rows, 1.0),
        "gradient of unlike losses": gradient_through_gather(rows, rank + 1.0),
        "sum": parallel.sum_over_ranks(torch.tensor([1.0, rank])),
        "gathered parts": [
            parallel.gather_parts(whole(count, 2).tensor_split(num_ranks)[rank], count) for count in (5, 4, 1, 0)
        ],
        "wrong part": error_of(lambda: parallel.gather_parts(whole(3, 2), 5)) if rank else "",
        "uneven": error_of(lambda: parallel.own_share(whole(7))),
        "second order": error_of(lambda: first_order.sum().backward()),
    }


@pytest.fixture(scope="module")
def ranks(run_ranks: Callable[[str, int], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return run_ranks(__file__, NUM_RANKS)


def test_alone_nothing_is_touched() -> None:
    x = whole(3, 2).requires_grad_()
    assert (parallel.rank(), parallel.world_size()) == (0, 1)
    assert parallel.gather(x) is x
    assert parallel.own_share(x) is x
    assert parallel.sum_over_ranks(x) is x


def test_shares_are_contiguous_and_in_the_order_of_the_ranks(ranks: list[dict[str, Any]]) -> None:
    assert [results["rank"] for results in ranks] == [(rank, NUM_RANKS) for rank in range(NUM_RANKS)]
    assert torch.equal(torch.cat([results["share"] for results in ranks], dim=1), whole(2, 6, 4))


def test_parts_of_unequal_length_come_back_whole_on_every_rank(ranks: list[dict[str, Any]]) -> None:
    for results in ranks:
        for count, found in zip((5, 4, 1, 0), results["gathered parts"], strict=True):
            assert torch.equal(found, whole(count, 2))
    assert "rank 1 of 3 holds 2 of 5 rows, got 3" in ranks[1]["wrong part"]


def test_gathering_is_the_inverse_of_sharing_on_every_rank(ranks: list[dict[str, Any]]) -> None:
    for results in ranks:
        assert torch.equal(results["gathered views"], whole(2, 6, 4))
        assert results["gathered integers"].tolist() == [0, 10, 1, 11, 2, 12]
        assert torch.equal(results["gathered channels_last"], whole(3, 2, 4, 4))


def test_draws_from_a_shared_generator_are_shares_of_one_draw(ranks: list[dict[str, Any]]) -> None:
    noise = torch.randn(6, generator=torch.Generator().manual_seed(3))
    assert torch.equal(torch.cat([results["noise"] for results in ranks]), noise)


@pytest.mark.parametrize(
    ("which", "sum_of_weights"), [("gradient of the same loss", 3.0), ("gradient of unlike losses", 1.0 + 2.0 + 3.0)]
)
def test_the_gradient_is_that_of_the_sum_of_all_ranks_losses(ranks, which, sum_of_weights):
    rows = (whole(6, 4) / 4).requires_grad_()
    (sum_of_weights * loss_of(rows)).backward()
    gathered = torch.cat([results[which] for results in ranks])
    torch.testing.assert_close(gathered, rows.grad, rtol=1e-14, atol=1e-14)


def test_sums_are_over_all_ranks(ranks: list[dict[str, Any]]) -> None:
    assert [results["sum"].tolist() for results in ranks] == [[3.0, 0.0 + 1.0 + 2.0]] * NUM_RANKS


def test_what_cannot_be_right_is_refused(ranks: list[dict[str, Any]]) -> None:
    for results in ranks:
        assert results["uneven"] == "batch: 3 ranks must share it evenly, got 7 rows; use a multiple of 3"
        assert "once_differentiable" in results["second order"]
