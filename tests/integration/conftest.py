"""What tests on Ray share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

RAYS_OWN = ("DeprecationWarning", "FutureWarning", "ResourceWarning")
"""Warnings that Ray raises in this process; they are not ours to mend."""


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark the tests of this folder that start Ray: those of files ``test_ray_*`` and those that want a cluster."""
    here = Path(__file__).parent
    for item in items:
        on_ray = item.path.name.startswith("test_ray_") or "cluster" in item.fixturenames
        if here in item.path.parents and on_ray:
            item.add_marker(pytest.mark.ray)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(900))  # on a busy machine a worker takes a minute to start
            for category in RAYS_OWN:
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{category}"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """One instance of Ray with two CPUs for all runs of a file; its address."""
    from ebclab.training.ray_switches import set_ray_switches

    set_ray_switches()
    import ray

    context = ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield context.address_info["gcs_address"]
    ray.shutdown()
