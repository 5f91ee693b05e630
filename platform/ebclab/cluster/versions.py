"""The versions that a process runs, compared between the nodes of a cluster."""

from __future__ import annotations

import hashlib
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from ebclab.errors import VersionError

MISSING = "none"
_PACKAGES = ("ebclab", "energy_contrast")


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
    """Return a message about the versions of a node that differ from the starting process's; None if all are equal.

    Args:
        node: Name of the node as the user knows it.
        theirs: Versions of the node by name.
        ours: Versions of the process that started the work.
    """
    wrong = [
        f"{name} {theirs.get(name, MISSING)}, got {version} where the command runs"
        for name, version in ours.items()
        if theirs.get(name, MISSING) != version
    ]
    if not wrong:
        return None
    return f"node {node}: {'; '.join(wrong)}; install the same wheel and constraints.txt on every node"
