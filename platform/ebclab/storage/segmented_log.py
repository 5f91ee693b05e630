"""A log that only grows, as a store holds it: parts that never change, and one file that names them and has the rest.

A store can only replace whole files, and a log of thousands of trials is sent thousands of times. The file that has the
log's own name is the only truth and is replaced in one request, as a log in one piece is: a part that it does not name
does not exist. Its first line names the parts; without such a line it is the whole log.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass

PART_BYTES = 64 << 10
"""A rest that is longer becomes a part: about what is sent of a log each time."""

_GROWING = ("trials.jsonl",)
_MARK = b'{"parts": '


@dataclass(frozen=True)
class Part:
    """A piece of a log that will not change.

    Attributes:
        name: Its file, beside the log; hidden, so that it is part of no copy.
        num_bytes: Its length.
    """

    name: str
    num_bytes: int


def grows(name: str) -> bool:
    """Return whether the file ``name`` of a run or a sweep is only ever appended to."""
    return name.rpartition("/")[2] in _GROWING


def new_part(name: str, content: bytes) -> Part:
    """Return the part that ``content`` becomes; its name is nobody else's."""
    return Part(f".{name.rpartition('/')[2]}/{uuid.uuid4().hex}", len(content))


def joined(parts: list[Part], rest: bytes) -> bytes:
    """Return the file that stands for a log of ``parts`` and what follows them."""
    if not parts:
        return rest
    named = [[part.name, part.num_bytes] for part in parts]
    return _MARK + json.dumps(named).encode() + b"}\n" + rest


def taken_apart(content: bytes) -> tuple[list[Part], bytes]:
    """Return the parts that a file names, in their order, and what follows them."""
    head, _, rest = content.partition(b"\n")
    if not head.startswith(_MARK):
        return [], content
    return [Part(name, num_bytes) for name, num_bytes in json.loads(head)["parts"]], rest


def assembled(content: bytes, read: Callable[[str], bytes]) -> bytes:
    """Return the log that the file with ``content`` stands for; ``read`` returns what the part of a name holds."""
    parts, rest = taken_apart(content)
    return b"".join([*(read(part.name) for part in parts), rest])
