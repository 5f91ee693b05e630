"""Whether the nodes of the cluster that this process has joined run what this process runs."""

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
    """Ask every other node that is there now what it runs. Those that come later ask themselves, before they work.

    A node that dies meanwhile, or does not answer within a minute, is left to that second question.

    Raises:
        VersionError: Some of them run something else; the text names each, what, and both versions.
    """
    others = _other_nodes()
    if not others:
        return
    # By value: a node with another ebclab could not be asked by name.
    cloudpickle.register_pickle_by_value(versions)  # type: ignore[no-untyped-call]
    try:
        ask = ray.remote(num_cpus=0, max_retries=0)(versions.versions_here)
        asked = {
            address: ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
            for address, node in others.items()
        }
    finally:
        cloudpickle.unregister_pickle_by_value(versions)  # type: ignore[no-untyped-call]
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=_ANSWER_SECONDS)
    ours = versions.versions_here()
    found = [mismatch for address, answer in asked.items() if (mismatch := _mismatch(address, answer, ours))]
    if found:
        raise VersionError("\n".join(found))


def _other_nodes() -> dict[str, str]:
    """Return the ids of all living nodes but this one, by the address that the user knows them by."""
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
