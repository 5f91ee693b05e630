"""Reads long text files in little memory: lines from the end backwards, or block by block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

BLOCK = 1 << 20
"""Bytes read at once."""


def lines_from_end(file: BinaryIO, having: bytes = b"") -> Iterator[tuple[int, bytes]]:
    """Yield the offset of each line, in bytes, and the line without its newline, last line first.

    Args:
        file: A file that is not written to meanwhile; an empty rest after its last newline is not a line.
        having: Only lines that contain these bytes are yielded; blocks without them are skipped quickly.
    """
    end = file.seek(0, os.SEEK_END)
    broken: list[bytes] = []  # parts of the line whose end was in earlier blocks, last part first
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
    """Yield offset and content of each line in ``text``, which begins at offset ``start``, last line first."""
    end = start + len(text)
    for line in reversed(text.split(b"\n")):
        if having in line:
            yield end - len(line), line
        end -= len(line) + 1


def line_numbers(file: BinaryIO, starts: list[int]) -> list[int]:
    """Return the line numbers, counted from 1, of the lines that begin at ``starts``, in ascending order."""
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
