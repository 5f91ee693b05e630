"""How many workers a run may have and what each reserves: plain numbers."""

from collections.abc import Callable

import pytest

from ebclab.cluster.placement import Placement, allowed_sizes, cpu_reservation, even_share, places
from ebclab.errors import UserError


def test_sizes_split_batch_and_groups_evenly() -> None:
    def sizes(fewest: int, most: int, groups: tuple[int, ...] = (1,)) -> tuple[int, ...]:
        return allowed_sizes(fewest, most, batch_size=96, groups=groups)

    assert sizes(1, 8) == (1, 2, 3, 4, 6, 8)
    assert sizes(4, 4) == (4,)
    assert sizes(1, 8, groups=(1, 4)) == (1, 2, 4)
    assert allowed_sizes(1, 8, batch_size=96, groups=(1,), chunks=16) == (1, 2, 3, 6)


TWO = [{"CPU": 2.0}, {"CPU": 2.0}]


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda: allowed_sizes(3, 3, batch_size=64, groups=()),
            "of a batch of 64, got 3 workers; use 1, 2, 4, 8 or change",
        ),
        (
            lambda: allowed_sizes(5, 7, batch_size=64, groups=(1, 4)),
            "a batch of 64 and of 4 batch norm groups, got 5:7 workers",
        ),
        (
            lambda: allowed_sizes(4, 4, batch_size=64, groups=(1,), chunks=32),
            "a batch of 64 in 32 chunks, got 4 workers; use 1, 2 or change",
        ),
        (
            lambda: Placement((3,), 1.0, 0).require_room(2, 0),
            "3 workers x 1 CPU = 3 CPUs, the cluster has 2; use fewer",
        ),
        (
            lambda: Placement((2,), 1.0, 1).require_room(8, 1),
            "2 workers x 1 GPU = 2 GPUs, the cluster has 1; use fewer workers or resources.device=cpu",
        ),
        (lambda: Placement((3,), 0.75, 0).require_room(2, 0), "3 workers x 0.75 CPUs = 2.25 CPUs, the cluster has 2; "),
        (lambda: Placement((1,), 3.0, 0).require_places(TWO), "got 1 worker with 3 CPUs each, and the nodes hold 0 of"),
        (lambda: Placement((3,), 1.5, 0).require_places(TWO), "got 3 workers with 1.5 CPUs each, and the nodes hold 2"),
    ],
)
def test_what_no_cluster_or_batch_can_hold_is_refused_with_the_sum(ask: Callable[[], object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        ask()


def test_what_fits_passes_and_an_elastic_run_needs_its_smallest_size() -> None:
    Placement((4,), 0.5, 0).require_room(2, 0)
    Placement((1, 2, 4), 1.0, 0).require_room(1, 0)
    Placement((1,), 3.0, 0).require_room(4, 0)
    Placement((2, 4), 1.5, 0).require_places(TWO)


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
    assert even_share([{"CPU": cpus} for cpus in nodes], workers) == share


def test_elastic_runs_round_down_to_an_allowed_size_and_threads_to_a_cpu() -> None:
    placement = Placement((2, 4, 8), 1.0, 0)
    assert [placement.largest(possible) for possible in (0, 1, 2, 3, 4, 7, 8, 100)] == [0, 0, 2, 2, 4, 4, 8, 8]
    assert placement.elastic
    assert not Placement((2,), 1.0, 0).elastic
    assert [Placement((1,), cpus, 0).threads for cpus in (0.5, 1.0, 1.5, 4.0)] == [1, 1, 1, 4]


HEAD_AND_GPUS = [{"CPU": 16.0}, {"CPU": 32.0, "GPU": 8.0}]


def test_workers_with_gpus_share_the_cpus_of_the_nodes_that_have_gpus() -> None:
    """Five each would fit on 48 CPUs, and the eight that need a GPU would wait for ever for 40 of 32."""
    assert even_share(HEAD_AND_GPUS, 8) == 5.0
    assert even_share(HEAD_AND_GPUS, 8, gpus=1) == 4.0
    assert cpu_reservation(HEAD_AND_GPUS, 8, cpus=48, gpus=1) == 4.0


def test_workers_of_a_stream_fit_on_single_nodes_and_leave_ray_data_a_cpu() -> None:
    """Against a search through all ways to lay workers on nodes."""
    for nodes in ([2, 2], [2, 2, 2, 2], [3, 3, 3], [8] * 8, [4, 1], [1, 1, 1], *([cpus] for cpus in range(2, 65))):
        for workers in range(1, sum(nodes)):
            share = cpu_reservation([{"CPU": cpus} for cpus in nodes], workers, cpus=sum(nodes))
            fitting = [
                each
                for each in range(1, max(nodes) + 1)
                if sum(cpus // each for cpus in nodes) >= workers and sum(nodes) - workers * each >= 1
            ]
            assert share == max(fitting), (nodes, workers)


def test_a_node_holds_as_many_as_its_scarcer_resource_allows() -> None:
    assert places(HEAD_AND_GPUS, 4, 1) == 8
    assert places(HEAD_AND_GPUS, 5, 1) == 6
    assert places(HEAD_AND_GPUS, 16, 0) == 3
    assert places([{"CPU": 2.0}], 0.3333, 0) == 6
    assert places([], 1, 0) == 0
