"""Addresses in settings: settings are written into run folders and shown, so no secret may stand in them."""

from __future__ import annotations

import re

_CREDENTIALS = re.compile(r"(?<=://)[^?@]*:[^?@]*@")  # a secret may hold slashes


def credentials_problem(address: str) -> str | None:
    """Return what is wrong with an address that holds a name and a password, without them; None when it holds none.

    Args:
        address: What the user wrote, perhaps after ``parquet:`` or ``folder:``.
    """
    shown = _CREDENTIALS.sub("***@", address)
    if shown == address:
        return None
    return (
        f"an address is written into run folders and must hold no credentials, got {shown}; "
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a profile or a role"
    )
