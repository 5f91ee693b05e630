"""Reads a long file of lines in little memory: from its end as far back as is asked, or block by block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

BLOCK = 1 << 20
"""Bytes that are read at once."""


def lines_from_end(file: BinaryIO, having: bytes = b"") -> Iterator[tuple[int, bytes]]:
    """Yield where each line begins, in bytes, and the line without its newline, the last line first.

    Args:
        file: A file that nobody writes into meanwhile; nothing after its last newline is no line.
        having: Only lines with these bytes are yielded; blocks without them are passed over quickly.
    """
    end = file.seek(0, os.SEEK_END)
    broken: list[bytes] = []  # the line that earlier blocks have the end of, its last part first
    for start in range((end - 1) // BLOCK * BLOCK, -1, -BLOCK):
        file.seek(start)
        block = file.read(min(BLOCK, end - start))
        if start + len(block) == end and block.endswith(b"\n"):
            block = block[:-1]
        if b"\n" not in block and start > 0:
            broken.append(block)
            continue
        block = b"".join([block, *reversed(broken)])
        first = 0 if start == 0 else block.index(b"\n") + 1
        broken = [block[: first - 1]] if first else []
        if having in block[first:]:
            yield from _reversed_lines(block[first:], start + first, having)


def _reversed_lines(text: bytes, start: int, having: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield place and content of each line in ``text``, which begins at ``start``, the last one first."""
    end = start + len(text)
    for line in reversed(text.split(b"\n")):
        if having in line:
            yield end - len(line), line
        end -= len(line) + 1


def line_numbers(file: BinaryIO, starts: list[int]) -> list[int]:
    """Return the numbers, from 1 and rising, of the lines that begin at ``starts``."""
    numbers, number, position = [], 1, file.seek(0)
    for start in sorted(starts):
        while position < start:
            block = file.read(min(BLOCK, start - position))
            number, position = number + block.count(b"\n"), position + len(block)
        numbers.append(number)
    return numbers


def beginning(path: Path, num_bytes: int) -> Iterator[bytes]:
    """Yield the first bytes of a file, block by block."""
    with path.open("rb") as file:
        for start in range(0, num_bytes, BLOCK):
            yield file.read(min(BLOCK, num_bytes - start))
