"""An append-only log in a store: immutable parts, and one file that lists them and contains the rest.

A store can only replace entire files, and a log of thousands of trials is pushed thousands of times. The file under the
log's own name is authoritative and is replaced in one request, like an unsegmented log; parts that it does not list are
ignored. Its first line lists the parts; without such a line, the file is the entire log.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from ebclab.storage.kinds import SEGMENTED
from ebclab.storage.reading import json_value

PART_BYTES = 64 << 10
"""Size in bytes above which the rest becomes a part, so that one push uploads little more than that."""

_MARK = b'{"parts": '
_PART_NAME = re.compile(rf"\.(?:{'|'.join(map(re.escape, SEGMENTED))})/[0-9a-f]{{32}}")


@dataclass(frozen=True)
class Part:
    """An immutable part of a log."""

    name: str  # path of its file, relative to the log's folder; hidden, so that no pull downloads it separately
    num_bytes: int  # its length in bytes


def grows(name: str) -> bool:
    """Return whether the file ``name`` is only ever appended to."""
    return name.rpartition("/")[2] in SEGMENTED


def new_part(name: str, content: bytes) -> Part:
    """Return a part for ``content``, under a unique name."""
    return Part(f".{name.rpartition('/')[2]}/{uuid.uuid4().hex}", len(content))


def joined(parts: list[Part], rest: bytes) -> bytes:
    """Return the content of the file that lists ``parts`` and contains the rest of the log."""
    if not parts:
        return rest
    listed = [[part.name, part.num_bytes] for part in parts]
    return _MARK + json.dumps(listed).encode() + b"}\n" + rest


def taken_apart(content: bytes) -> tuple[list[Part], bytes]:
    """Return the parts that a file lists, in their order, and the rest of the log."""
    head, _, rest = content.partition(b"\n")
    if not head.startswith(_MARK):
        return [], content
    listed = json_value(head)["parts"]
    if not isinstance(listed, list) or not all(_is_part(entry) for entry in listed):
        raise ValueError(f"its first line lists what are not parts of a log, got {str(listed)[:80]}")
    return [Part(name, num_bytes) for name, num_bytes in listed], rest


def _is_part(entry: object) -> bool:
    """Return whether an entry of the list of parts is a valid name of a part and its length."""
    if not isinstance(entry, list) or len(entry) != 2:
        return False
    name, num_bytes = entry
    return isinstance(name, str) and _PART_NAME.fullmatch(name) is not None and type(num_bytes) is int and num_bytes > 0


def assembled(content: bytes, read: Callable[[str], bytes]) -> bytes:
    """Return the entire log from the file's ``content``; ``read`` returns the content of a part by its name."""
    parts, rest = taken_apart(content)
    return b"".join([*(read(part.name) for part in parts), rest])
