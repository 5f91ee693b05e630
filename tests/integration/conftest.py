"""What tests on Ray share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """One instance of Ray with two CPUs for all runs of a file; its address."""
    from ebclab.training.ray_switches import set_ray_switches

    set_ray_switches()
    import ray

    context = ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield context.address_info["gcs_address"]
    ray.shutdown()
