"""How trials share a machine: plain sums, and every set-up that would wait for ever refused with its sum."""

from typing import Any

import pytest

from ebclab.config.sections import ResourcesConfig
from ebclab.errors import UserError
from ebclab.sweeps.resources import Limits, TrialResources, share_out


def slots(
    *,
    cpus: float = 8.0,
    gpus: float = 0.0,
    num_trials: int = 100,
    gpus_per_trial: float | None = None,
    concurrent: int | None = None,
    searches: int = 1,
    **asked: Any,
) -> TrialResources:
    limits = Limits(gpus_per_trial=gpus_per_trial, concurrent=concurrent, searches=searches)
    return share_out(ResourcesConfig(**asked), limits, cpus=cpus, gpus=gpus, num_trials=num_trials)


def test_a_trial_or_each_of_its_workers_has_a_gpu_where_there_are_some() -> None:
    asked = [{}, {"gpus_per_trial": 0.0}, {"device": "cpu"}, {"workers": 2, "cpus_per_worker": 1.0}]
    assert [slots(gpus=2.0, **each).all_gpus for each in asked] == [1.0, 0.0, 0.0, 2.0]
    assert slots().all_gpus == 0.0
    with pytest.raises(UserError, match="--gpus-per-trial: a trial needs 1, the cluster has 0"):
        slots(device="cuda")


def test_as_many_trials_run_at_once_as_the_scarcer_of_cpus_and_gpus_allows_and_no_more_than_asked_for():
    assert slots() == TrialResources(8, 1.0, 0.0, 1)
    assert slots(threads=2) == TrialResources(4, 2.0, 0.0, 2)
    assert slots(threads=3) == TrialResources(2, 3.0, 0.0, 3)
    assert slots(threads=8).concurrent == 1
    assert slots(num_trials=3).concurrent == 3
    assert slots(concurrent=2).concurrent == 2
    assert slots(concurrent=5, num_trials=3).concurrent == 3
    assert slots(cpus=4.0, gpus=2.0, gpus_per_trial=0.25).concurrent == 4
    assert slots(cpus=4.0, gpus=2.0, gpus_per_trial=1.0).concurrent == 2


@pytest.mark.parametrize(
    ("share", "gpus", "fit"),
    [(1, 2, 2), (0.5, 2, 4), (0.25, 2, 8), (0.4, 2, 4), (0.3, 1, 3), (0.1, 1, 10), (1 / 3, 1, 3), (2, 4, 2), (2, 5, 2)],
)
def test_a_share_of_a_gpu_lies_on_one_card(share: float, gpus: int, fit: int) -> None:
    found = slots(cpus=64.0, gpus=float(gpus), gpus_per_trial=share)
    assert (found.concurrent, found.gpus, found.cpus) == (fit, share, 1.0)


def test_trials_with_workers_reserve_nothing_themselves_and_fit_where_their_workers_share_all_cpus():
    assert slots(workers=2, cpus_per_worker=1.0) == TrialResources(4, 0.0, 0.0, 1)
    assert slots(workers=2, cpus_per_worker=0.5, threads=2) == TrialResources(8, 0.0, 0.0, 2)
    assert slots(workers=2) == TrialResources(1, 0.0, 0.0, 1)  # its workers share all CPUs
    found = {slots(cpus=float(cpus), workers=workers).concurrent for cpus in range(1, 33) for workers in range(1, 33)}
    assert found == {1}


def test_the_gpus_of_a_trials_workers_are_said_and_charged() -> None:
    """Two workers with a GPU each: the page had said that no GPU was used, at no cost."""
    found = slots(workers=2, cpus_per_worker=1.0, gpus=4.0, gpus_per_trial=2.0)
    assert (found.concurrent, found.gpus, found.all_gpus) == (2, 0.0, 2.0)
    assert found.in_words() == "2 at once, 1 CPU thread and 2 GPU each"
    alone = slots(gpus=4.0, gpus_per_trial=0.5)
    assert (alone.gpus, alone.all_gpus) == (0.5, 0.5)
    assert slots().in_words() == "8 at once, 1 CPU thread each"
    assert slots(threads=2, gpus=1.0, gpus_per_trial=0.25).in_words() == "4 at once, 2 CPU threads and 0.25 GPU each"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threads": 9}, "a trial needs 9 CPUs, the cluster has 8"),
        ({"workers": 3, "cpus_per_worker": 3.0}, "a trial needs 9 CPUs, the cluster has 8"),
        ({"gpus_per_trial": 1.0}, "--gpus-per-trial: a trial needs 1, the cluster has 0"),
        ({"gpus": 2.0, "gpus_per_trial": 3.0}, "a trial needs 3, the cluster has 2"),
        ({"concurrent": 0}, "--concurrent: at least one trial at once, got 0"),
        ({"concurrent": -1}, "--concurrent: at least one trial at once, got -1"),
        ({"concurrent": 9}, r"--concurrent: 9 x 1 CPUs = 9 and .* the cluster has 8 CPUs and 0 GPUs; use at most 8"),
        (
            {"gpus": 2.0, "gpus_per_trial": 0.4, "concurrent": 5},
            r"5 x 0.4 GPUs = 2, the cluster has 8 CPUs and 2 GPUs, and a share must fit one card; use at most 4",
        ),
        (
            {"workers": 2, "gpus": 8.0, "gpus_per_trial": 0.0},
            "--gpus-per-trial: each of a trial's 2 workers takes 1 GPU, got 0; leave it out, and use",
        ),
        ({"workers": 2, "gpus_per_trial": 1.0}, "--gpus-per-trial: each of a trial's 2 workers takes 0 GPUs, got 1"),
        ({"workers": 2, "concurrent": 2}, "--concurrent: each trial's 2 workers share all CPUs, got 2 at once"),
        ({"workers": 2, "searches": 3}, "--at-once: each trial's 2 workers share all CPUs, got 3 at once"),
    ],
)
def test_what_would_wait_for_ever_is_refused_with_the_sum(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        slots(**changes)


def test_a_trial_that_fits_on_the_sum_of_the_nodes_and_on_no_node_is_refused() -> None:
    """It was handed to Ray, which waited for ever for a node with three CPUs."""
    nodes = [{"CPU": 2.0, "GPU": 1.0}, {"CPU": 2.0, "GPU": 1.0}]
    with pytest.raises(UserError, match=r"got 3 CPUs and 0 GPUs for each, and no node of the cluster has them; use"):
        slots(cpus=4.0, threads=3).on(nodes)
    with pytest.raises(UserError, match=r"got 1 CPUs and 2 GPUs for each, and no node"):
        slots(cpus=4.0, gpus=2.0, gpus_per_trial=2.0).on(nodes)
    slots(cpus=4.0, threads=2, gpus=2.0, gpus_per_trial=1.0).on(nodes)
    slots(workers=2).on([])  # its workers reserve for themselves


@pytest.mark.parametrize(
    ("changes", "nodes", "fit"),
    [
        ({"threads": 3}, [{"CPU": 8.0}] * 4, 8),  # 32 CPUs hold 10 only where a trial may span two nodes
        ({"threads": 3}, [{"CPU": 8.0}] * 4 + [{"CPU": 64.0}] * 8, 10),  # nodes to come; 32 CPUs is the cluster's limit
        ({"gpus": 6.0, "gpus_per_trial": 2.0}, [{"CPU": 16.0, "GPU": 3.0}] * 2, 2),
        ({"gpus": 6.0, "gpus_per_trial": 0.5}, [{"CPU": 16.0, "GPU": 3.0}] * 2, 12),
        ({"workers": 2, "cpus_per_worker": 3.0}, [{"CPU": 8.0}] * 4, 5),  # workers may be on two nodes
    ],
)
def test_no_more_trials_run_at_once_than_nodes_hold(changes, nodes, fit):
    assert slots(cpus=32.0, **changes).on(nodes).concurrent == fit


@pytest.mark.parametrize("device", ["xpu", "hpu", "mps"])
def test_an_accelerator_that_ray_would_not_reserve_is_refused(device: str) -> None:
    with pytest.raises(UserError, match=f"resources.device: Ray places processes on cpu or cuda alone, got {device}; "):
        slots(gpus=2.0, device=device)
