"""Whether anybody listens where the user says a Ray cluster is."""

from __future__ import annotations

import socket

from ebclab.errors import UserError

_ANSWER_SECONDS = 5.0


def require_answer(address: str) -> None:
    """Refuse an address where nothing listens; Ray itself would try for a minute and then end the process.

    Args:
        address: "local", "auto" or HOST:PORT.

    Raises:
        UserError: It is no address, or nobody listens there.
    """
    if address in ("local", "auto"):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise UserError(
            f"resources.address: not an address of a Ray cluster, got {address}; "
            "write HOST:PORT (the head's GCS port, usually 6379), auto, or nothing for this machine alone"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS).close()
    except OSError as error:
        raise UserError(
            f"resources.address: no cluster answers, got {address} ({error}); "
            "check RAY_ADDRESS and that the cluster is up, or leave it out to use this machine alone"
        ) from error
