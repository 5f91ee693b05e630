"""The versions that a process runs, compared between the nodes of a cluster that it has joined."""

from __future__ import annotations

import hashlib
import platform
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

import ray
from ray import cloudpickle
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ebclab.errors import VersionError

MISSING = "none"
_PACKAGES = ("ebclab", "energy_contrast")
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True)
class Origin:
    """The process that started a run or a sweep; its workers receive this object and compare their versions with it."""

    host: str  # name of the machine
    versions: Mapping[str, str]  # the result of ``versions_here`` there

    @classmethod
    def here(cls) -> Origin:
        """Return the origin for work that this process starts."""
        return cls(socket.gethostname(), versions_here())

    def require_same_here(self) -> None:
        """Refuse a machine with other versions. The origin's is not checked: its code may be edited."""
        host = socket.gethostname()
        if host != self.host and (problem := mismatch(host, versions_here(), self.versions)):
            raise VersionError(problem)


def versions_here() -> dict[str, str]:
    """Return the versions of Python, Ray, torch and ebclab that this process would import.

    Builds of torch for different devices (``+cpu``, ``+cu130``) count as the same version. The version of ebclab is
    followed by a digest of its source, since the code may change between two wheels of one version. This function uses
    the standard library only: Ray sends it by value to nodes that may have another ebclab, or none.
    """
    versions = {"Python": platform.python_version()}
    for name in ("ray", "torch", "ebclab"):
        try:
            versions[name] = metadata.version(name).split("+")[0]
        except metadata.PackageNotFoundError:
            versions[name] = MISSING
    hasher = hashlib.sha256()
    for package in _PACKAGES:
        spec = util.find_spec(package)
        for folder in spec.submodule_search_locations or () if spec else ():
            for path in sorted(Path(folder).rglob("*.py")):
                hasher.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
        if spec is None:
            versions["ebclab"] = MISSING
    if versions["ebclab"] != MISSING:
        versions["ebclab"] += f" ({hasher.hexdigest()[:8]})"
    return versions


def mismatch(node: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> str | None:
    """Return a message about the versions of a node that differ from the starting process's; None if all are equal."""
    wrong = [
        f"{name} {theirs.get(name, MISSING)}, got {version} where the command runs"
        for name, version in ours.items()
        if theirs.get(name, MISSING) != version
    ]
    if not wrong:
        return None
    return f"node {node}: {'; '.join(wrong)}; install the same wheel and constraints.txt on every node"


def require_same_versions() -> None:
    """Check the versions of all other nodes of the cluster. Nodes that join later check themselves before they work.

    A node that dies meanwhile, or does not respond within a minute, is skipped: it will check itself, too.
    """
    others = _other_nodes()
    if not others:
        return
    # By value: a node with another ebclab could not import the function by name.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    try:
        ask = ray.remote(num_cpus=0, max_retries=0)(versions_here)
        answers = {
            address: ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
            for address, node in others.items()
        }
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    ray.wait(list(answers.values()), num_returns=len(answers), timeout=_ANSWER_SECONDS)
    ours = versions_here()
    wrong = [problem for address, answer in answers.items() if (problem := _problem(address, answer, ours))]
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


def _problem(address: str, answer: ray.ObjectRef[dict[str, str]], ours: Mapping[str, str]) -> str | None:
    try:
        theirs: dict[str, str] = ray.get(answer, timeout=0.1)
    except (GetTimeoutError, RayError):
        return None
    return mismatch(address, theirs, ours)
