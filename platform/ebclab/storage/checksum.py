"""Checksums that detect corruption: of a file, and of a JSON file over its other values, which it stores itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ebclab.regular_file import open_regular

_KEY = "digest"
_LARGEST = 1 << 50  # bytes of a file, without a real limit: only that it is a regular file is checked


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with open_regular(path, _LARGEST) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a JSON file with its SHA-256 under the key ``digest``."""
    return {**content, _KEY: _digest(content)}


def require_checksum(content: object) -> None:
    """Refuse content that has changed since ``with_checksum``; content of older versions, without checksum, passes."""
    if isinstance(content, Mapping) and _KEY in content and content[_KEY] != _digest(content):
        raise ValueError("its content does not match its checksum")


def _digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON object, serialized without its checksum and spaces and with sorted keys."""
    own = {key: value for key, value in content.items() if key != _KEY}
    text = json.dumps(own, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
