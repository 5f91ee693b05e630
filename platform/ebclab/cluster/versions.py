"""Which versions a process runs, and whether a node of a cluster runs the same ones."""

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
    """Where a run's or a sweep's orders come from; it travels with them.

    Attributes:
        host: Name of the machine.
        versions: What ``versions_here`` says there.
    """

    host: str
    versions: Mapping[str, str]

    @classmethod
    def here(cls) -> Origin:
        """Return this process."""
        return cls(socket.gethostname(), versions_here())

    def require_same_here(self) -> None:
        """Refuse to work on a machine that runs other versions. On the origin's own nobody looks: it may be edited.

        Raises:
            VersionError: This machine runs something else.
        """
        host = socket.gethostname()
        if host != self.host and (found := mismatch(host, versions_here(), self.versions)):
            raise VersionError(found)


def versions_here() -> dict[str, str]:
    """Return the versions of Python, Ray, torch and ebclab that this process would import.

    A build of torch for another device (``+cpu``, ``+cu130``) is the same version. ebclab's is followed by a digest of
    its source, since wheels of one version are built anew while it is worked on. Nothing but the standard library is
    used: this function travels by value to nodes that may have another ebclab, or none.
    """
    found = {"Python": platform.python_version()}
    for name in ("ray", "torch", "ebclab"):
        try:
            found[name] = metadata.version(name).split("+")[0]
        except metadata.PackageNotFoundError:
            found[name] = MISSING
    hasher = hashlib.sha256()
    for package in _PACKAGES:
        spec = util.find_spec(package)
        for folder in spec.submodule_search_locations or () if spec else ():
            for path in sorted(Path(folder).rglob("*.py")):
                hasher.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
        if spec is None:
            found["ebclab"] = MISSING
    if found["ebclab"] != MISSING:
        found["ebclab"] += f" ({hasher.hexdigest()[:8]})"
    return found


def mismatch(node: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> str | None:
    """Return in one sentence what a node runs otherwise than the process that gives the orders; None if nothing.

    Args:
        node: What the user knows the node by.
        theirs: The node's versions by name.
        ours: Those of the process that gives the orders.
    """
    wrong = [
        f"{name} {theirs.get(name, MISSING)}, got {version} where the command runs"
        for name, version in ours.items()
        if theirs.get(name, MISSING) != version
    ]
    if not wrong:
        return None
    return f"node {node}: {'; '.join(wrong)}; install the same wheel and constraints.txt on every node"
