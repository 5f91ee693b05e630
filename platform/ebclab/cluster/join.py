"""Being part of a cluster of Ray, for as long as its head answers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray._private import services
from ray.exceptions import RayError

from ebclab.cluster.address import require_answer
from ebclab.cluster.switches import environment_of_nodes
from ebclab.errors import UserError
from ebclab.training.head import Head, Showing, watched_head


@contextmanager
def joined(address: str, display: Showing) -> Iterator[Head]:
    """Be part of a cluster, or of one on this machine alone when ``address`` is "local"; end when its head is lost.

    Raises:
        UserError: Nobody answers there, or another version of Ray or Python does, or the cluster wants another token.
    """
    here_before = ray.is_initialized()
    if not here_before:
        _join(address)
    with watched_head(ray.get_runtime_context().gcs_address, display) as head:
        try:
            yield head
        finally:
            if not here_before:
                ray.shutdown()


def _join(address: str) -> None:
    _require_answer(address)
    where = f"resources.address: {address}" if address != "local" else "Ray on this machine"
    try:
        # A local instance has no dashboard: nothing listens for commands on any port but Ray's own, with its token.
        dashboard = False if address == "local" else None
        told = None if address == "local" else environment_of_nodes()
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        ray.init(address=address, include_dashboard=dashboard, runtime_env=told, **quiet)
    except (ConnectionError, ValueError, RuntimeError, RayError) as error:
        reason = " ".join(str(error).split())
        if "Version mismatch" in reason:
            raise UserError(f"{where}: {reason}; install the cluster's versions here") from error
        raise UserError(f"{where}: no cluster answers, got {reason}; start one or leave the address out") from error


def _require_answer(address: str) -> None:
    """Refuse an address where no cluster lets this process in; "auto" is the one that Ray finds on this machine."""
    if address != "auto":
        require_answer(address)
    elif found := services.canonicalize_bootstrap_address("auto"):  # None is for ray.init to refuse
        require_answer(found, found=True)


def cluster_size() -> tuple[float, float]:
    """Return the CPUs and GPUs that the joined cluster has, or may grow to."""
    limit = ray._private.state.state.get_max_resources_from_cluster_config() or {}
    cpus, gpus = (max(sum(node.get(unit, 0) for node in nodes()), limit.get(unit, 0)) for unit in ("CPU", "GPU"))
    return cpus, gpus


def nodes() -> list[dict[str, float]]:
    """Return what each living node of the joined cluster has, by the name of the resource."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
