"""Checks that all nodes of the joined cluster run the versions that this process runs."""

from __future__ import annotations

from collections.abc import Mapping

import ray
from ray import cloudpickle
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ebclab.cluster import versions
from ebclab.errors import VersionError

_ANSWER_SECONDS = 60.0


def require_same_versions() -> None:
    """Check the versions of all other nodes of the cluster. Nodes that join later check themselves before they work.

    A node that dies meanwhile, or does not respond within a minute, is skipped: it will check itself, too.
    """
    others = _other_nodes()
    if not others:
        return
    # By value: a node with another ebclab could not import the function by name.
    cloudpickle.register_pickle_by_value(versions)  # type: ignore[no-untyped-call]
    try:
        ask = ray.remote(num_cpus=0, max_retries=0)(versions.versions_here)
        answers = {
            address: ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
            for address, node in others.items()
        }
    finally:
        cloudpickle.unregister_pickle_by_value(versions)  # type: ignore[no-untyped-call]
    ray.wait(list(answers.values()), num_returns=len(answers), timeout=_ANSWER_SECONDS)
    ours = versions.versions_here()
    wrong = [mismatch for address, answer in answers.items() if (mismatch := _mismatch(address, answer, ours))]
    if wrong:
        raise VersionError("\n".join(wrong))


def _other_nodes() -> dict[str, str]:
    """Return the ids of all live nodes except this one, by their address and host name."""
    here = ray.get_runtime_context().get_node_id()
    nodes = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    return {
        f"{node['NodeManagerAddress']} ({node['NodeManagerHostname']}, {node['NodeID'][:6]})": node["NodeID"]
        for node in nodes
        if node["NodeID"] != here
    }


def _mismatch(address: str, answer: ray.ObjectRef[dict[str, str]], ours: Mapping[str, str]) -> str | None:
    try:
        theirs: dict[str, str] = ray.get(answer, timeout=0.1)
    except (GetTimeoutError, RayError):
        return None
    return versions.mismatch(address, theirs, ours)
