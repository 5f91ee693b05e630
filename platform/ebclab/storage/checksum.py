"""A checksum stored in a JSON file over the file's other values, which detects corruption."""

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
    """Refuse content that has changed since ``with_checksum``; content of older versions, without checksum, passes.

    Args:
        content: What ``json.loads`` returned.

    Raises:
        ValueError: The content does not match its checksum.
    """
    if isinstance(content, Mapping) and _KEY in content and content[_KEY] != _digest(content):
        raise ValueError("its content does not match its checksum")


def _digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON object, serialized without its checksum and spaces and with sorted keys."""
    own = {key: value for key, value in content.items() if key != _KEY}
    text = json.dumps(own, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
