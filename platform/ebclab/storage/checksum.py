"""A checksum in a JSON file over the file's own content: one changed bit in it is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_KEY = "digest"


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a JSON file with its SHA-256 under the key ``digest``."""
    return {**content, _KEY: _digest(content)}


def require_checksum(content: object) -> None:
    """Refuse what ``with_checksum`` made when it has changed since; content without a checksum is older and passes.

    Args:
        content: What ``json.loads`` returned.

    Raises:
        ValueError: The content does not match its checksum.
    """
    if isinstance(content, Mapping) and _KEY in content and content[_KEY] != _digest(content):
        raise ValueError("its content does not match its checksum")


def _digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON object as text without spaces, its keys sorted, the checksum left out."""
    own = {key: value for key, value in content.items() if key != _KEY}
    text = json.dumps(own, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
