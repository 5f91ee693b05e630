"""The head of the cluster that this machine is part of, for commands that speak to it without joining the cluster."""

from __future__ import annotations

import os

from ray._private import services

from ebclab.cluster.address import require_answer
from ebclab.errors import UserError


def head_of_this_machine(way_out: str) -> str:
    """Return the address of the head once it has let this process in.

    Args:
        way_out: What to do when no node of a cluster runs here.

    Raises:
        UserError: No node runs here, or the head does not answer or does not let this process in.
    """
    named = os.environ.get("RAY_ADDRESS") or "auto"
    address = named if named != "auto" else services.canonicalize_bootstrap_address("auto")
    if address is None:
        raise UserError(f"no cluster runs on this machine; {way_out}")
    require_answer(address, found=True)
    return address
