"""How many workers a run may have and what each reserves: plain numbers."""

from __future__ import annotations

import pytest

from ebclab.cluster.placement import Placement, allowed_sizes, even_share
from ebclab.errors import UserError


def test_sizes_split_batch_and_groups_evenly() -> None:
    def sizes(fewest: int, most: int, groups: tuple[int, ...] = (1,)) -> tuple[int, ...]:
        return allowed_sizes(fewest, most, batch_size=96, groups=groups)

    assert sizes(1, 8) == (1, 2, 3, 4, 6, 8)
    assert sizes(4, 4) == (4,)
    assert sizes(1, 8, groups=(1, 4)) == (1, 2, 4)


def test_a_number_that_splits_nothing_evenly_is_refused_with_numbers_that_do() -> None:
    with pytest.raises(UserError, match=r"of a batch of 64, got 3 workers; use 1, 2, 4, 8 or change") as raised:
        allowed_sizes(3, 3, batch_size=64, groups=())
    assert raised.value.exit_code == 2
    with pytest.raises(UserError, match=r"a batch of 64 and of 4 batch norm groups, got 5:7 workers"):
        allowed_sizes(5, 7, batch_size=64, groups=(1, 4))


@pytest.mark.parametrize(
    ("nodes", "workers", "share"),
    [
        ([2], 1, 2),
        ([2], 2, 1),
        ([8], 3, 2),
        ([64], 8, 8),
        ([8, 4], 3, 4),  # 8 // 4 + 4 // 4
        ([2, 2, 2, 2], 2, 2),  # not 4, although there are 8 in all: no node holds 4
        ([3, 3], 3, 1),  # not 2: a worker is not cut in two
        ([2], 4, 1),  # refused later, with the sum
        ([], 1, 1),  # a cluster that has yet to grow
    ],
)
def test_workers_share_whole_cpus_as_nodes_can_hold_them(nodes: list[float], workers: int, share: float) -> None:
    assert even_share(nodes, workers) == share


def test_the_refusal_shows_the_sum() -> None:
    with pytest.raises(UserError, match=r"3 workers x 1 CPU = 3 CPUs, the cluster has 2; use fewer workers"):
        Placement((3,), 1.0, 0).require_room(2, 0)
    with pytest.raises(UserError, match=r"2 workers x 1 GPU = 2 GPUs, the cluster has 1; .*device=cpu"):
        Placement((2,), 1.0, 1).require_room(8, 1)
    with pytest.raises(UserError, match=r"3 workers x 0.75 CPUs = 2.25 CPUs, the cluster has 2; "):
        Placement((3,), 0.75, 0).require_room(2, 0)
    Placement((4,), 0.5, 0).require_room(2, 0)
    Placement((1, 2, 4), 1.0, 0).require_room(1, 0)  # an elastic run needs room for its smallest size


def test_elastic_runs_round_down_to_an_allowed_size() -> None:
    placement = Placement((2, 4, 8), 1.0, 0)
    assert [placement.largest(possible) for possible in (0, 1, 2, 3, 4, 7, 8, 100)] == [0, 0, 2, 2, 4, 4, 8, 8]
    assert placement.elastic
    assert not Placement((2,), 1.0, 0).elastic


def test_threads_are_what_was_reserved_and_never_none() -> None:
    assert [Placement((1,), cpus, 0).threads for cpus in (0.5, 1.0, 1.5, 4.0)] == [1, 1, 1, 4]
