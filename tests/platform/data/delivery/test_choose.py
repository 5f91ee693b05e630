"""Resident or streamed, and how many CPUs are left for whom: decisions on plain values."""

import pytest

from ebclab.cluster.placement import cpu_reservation, fed_workers, require_cpus
from ebclab.data.delivery.choose import choose_delivery, require_neighbouring_batch
from ebclab.errors import DataError, UserError

SMALL = {"name": "parquet:/x", "needed_bytes": 10**9, "free_bytes": 2 * 10**9, "workers": 2}


def test_auto_keeps_what_fits_into_half_of_the_free_memory() -> None:
    sizes = "(1.0 GB, 2.0 GB free)"
    assert choose_delivery("auto", **SMALL) == ("resident", f"images in memory: they fit {sizes}")
    larger = choose_delivery("auto", **(SMALL | {"needed_bytes": 10**9 + 1}))
    assert larger == ("stream", f"images streamed: they are too many {sizes}")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"workers": 0}, "a stream needs Ray, got resources.workers=0"),
        ({"name": "cifar10"}, "run `ebclab data prepare cifar10 --to DIR` and set data.name=parquet:DIR"),
    ],
)
def test_auto_keeps_what_cannot_be_streamed_only_where_it_fits(changes: dict, reason: str) -> None:
    for asked, needed in (("stream", 10**9), ("auto", 2 * 10**9 + 1)):
        with pytest.raises(DataError) as caught:
            choose_delivery(asked, **(SMALL | changes | {"needed_bytes": needed}))
        assert str(caught.value).startswith("data.delivery: ")
        assert reason in str(caught.value)
    large = choose_delivery("auto", **(SMALL | changes | {"needed_bytes": 2 * 10**9}))
    assert large.delivery == "resident"
    assert reason in large.reason


def test_proposals_of_a_stream_need_a_second_batch() -> None:
    require_neighbouring_batch(64, 32)
    with pytest.raises(DataError, match=r"got 63 images for batches of 32; set training\.batch_size to 31 or less"):
        require_neighbouring_batch(63, 32)


def test_what_is_asked_for_is_done() -> None:
    assert choose_delivery("stream", **SMALL).delivery == "stream"
    assert choose_delivery("resident", **(SMALL | {"needed_bytes": 10**12})).delivery == "resident"


@pytest.mark.parametrize(
    ("cpus", "workers", "each"), [(2, 1, 1.0), (2, 2, 0.5), (2, 3, 0.3333), (16, 4, 3.0), (1.5, 1, 0.5)]
)
def test_a_worker_reserves_its_share_of_what_a_stream_leaves(cpus: float, workers: int, each: float) -> None:
    assert cpu_reservation([{"CPU": cpus}], workers, cpus=cpus) == each
    require_cpus(cpus, workers, each, streamed=True)


def test_a_stream_on_one_cpu_is_refused() -> None:
    with pytest.raises(UserError, match=r"for Ray Data exceed the cluster's CPUs, got 1"):
        cpu_reservation([{"CPU": 1}], 2, cpus=1)


def test_a_reservation_that_starves_the_stream_is_refused_with_the_sum() -> None:
    with pytest.raises(UserError, match=r"got 2 for 2 workers x 1 \+ 1 for Ray Data = 3; use fewer workers"):
        require_cpus(2, 2, 1, streamed=True)
    require_cpus(2, 2, 1, streamed=False)


@pytest.mark.parametrize(
    ("cpus", "reserved", "streamed", "workers"),
    [(3, 1, True, 2), (2, 1, True, 1), (1, 1, True, 0), (0, 1, True, 0), (2, 0.3333, True, 3), (2, 1, False, 2)],
)
def test_as_many_workers_are_fed_as_leave_ray_data_a_cpu(cpus, reserved, streamed, workers):
    assert fed_workers(cpus, reserved, streamed=streamed) == workers
