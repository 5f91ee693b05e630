"""The page headers of a Parquet file, which state what its pages become in memory; the footer's totals are not binding.

https://github.com/apache/parquet-format: a page header is a struct in Thrift's compact protocol, before each page.
"""

from __future__ import annotations

import io
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

_BYTE_ARRAYS = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_OF_DICTIONARY, _OF_EARLIER_VALUE = (2, 8), 7  # encodings that repeat a value of the dictionary, or the value before
_DEEPEST = 8  # structs within structs
_UNCOMPRESSED, _COMPRESSED, _HEADERS, _DICTIONARY_HEADER, _SECOND = 2, 3, (5, 7, 8), 7, 8  # fields by number
_ENDS_AFTER = 10  # bytes of the longest integer

_Fields = dict[int, "int | _Fields"]


class Chunks(io.RawIOBase):
    """A Parquet file whose column chunks can be looked at before they are decoded, and are still read once.

    Args:
        handle: The open file.
    """

    def __init__(self, handle: pa.NativeFile) -> None:
        super().__init__()
        self._handle, self._at, self.num_bytes = handle, 0, handle.size()
        self._held: dict[int, bytes] = {}

    def hold(self, chunk: pq.ColumnChunkMetaData) -> bytes:
        """Return the bytes of a column chunk, and keep them until they are read.

        Raises:
            ValueError: They are not within the file.
        """
        starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
        start = min(each for each in starts if each is not None and (each > 0 or each == starts[1]))
        size = chunk.total_compressed_size
        if not 0 <= start <= start + size <= self.num_bytes:
            raise ValueError(f"a column of {size:,} bytes at {start:,} in a file of {self.num_bytes:,}")
        self._held[start] = self._handle.read_at(size, start)
        return self._held[start]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.num_bytes}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(self.num_bytes - self._at, 0)
        size = left if size < 0 else min(size, left)
        held = self._held.pop(self._at, b"") if size else b""
        content = held if len(held) == size else self._handle.read_at(size, self._at)
        self._at += len(content)
        return content


class Pages(NamedTuple):
    """What the pages of a column chunk become in memory.

    Attributes:
        num_bytes: Their size, decompressed.
        num_values: Number of their values.
        repeated_bytes: Upper bound of the size of a value that may be stored once and occur often; 0 if there is none.
    """

    num_bytes: int
    num_values: int
    repeated_bytes: int


def pages_of(content: bytes, chunk: pq.ColumnChunkMetaData) -> Pages:
    """Return what the headers of a column chunk's pages state.

    Args:
        content: The chunk's bytes.
        chunk: What the footer says of it.

    Raises:
        ValueError: A header is damaged, or pages are missing.
    """
    at = num_bytes = num_values = repeated = dictionary = 0
    while at < len(content):
        try:
            fields, at = _struct(content, at)
        except IndexError:
            raise ValueError("a damaged page header") from None
        size, compressed = fields.get(_UNCOMPRESSED), fields.get(_COMPRESSED)
        held = {number: each for number in _HEADERS if isinstance(each := fields.get(number), dict)}
        counts = [each.get(1) for each in held.values()]
        numbers = [each for each in (size, compressed, *counts) if isinstance(each, int) and each >= 0]
        if not isinstance(size, int) or not isinstance(compressed, int) or len(numbers) < 2 + len(counts):
            raise ValueError("a damaged page header")
        at += compressed
        num_bytes += size
        for number, each in held.items():
            if number == _DICTIONARY_HEADER:
                dictionary = max(dictionary, size)
                continue
            num_values += int(each[1])  # type: ignore[arg-type]
            encoding = each.get(4 if number == _SECOND else 2)
            if encoding in _OF_DICTIONARY:
                repeated = max(repeated, dictionary)
            elif encoding == _OF_EARLIER_VALUE:
                repeated = max(repeated, size)
    if at != len(content) or num_values < chunk.num_values:
        raise ValueError(f"pages of {num_values:,} values, {chunk.num_values:,} were expected")
    return Pages(num_bytes, num_values, repeated if chunk.physical_type in _BYTE_ARRAYS else 0)


def _struct(content: bytes, at: int, depth: int = 0) -> tuple[_Fields, int]:
    """Return the fields of a struct by number, without texts, and where it ends.

    Raises:
        IndexError: It is cut off or no such struct.
    """
    fields, number = _Fields(), 0
    while head := content[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(content, at)
        match head & 15:
            case 1 | 2:
                fields[number] = 2 - (head & 15)
            case 3:
                at += 1
            case 4 | 5 | 6:
                fields[number], at = _integer(content, at)
            case 7:
                at += 8
            case 8:
                length, at = _unsigned(content, at)
                at += length
            case 12 if depth < _DEEPEST:
                fields[number], at = _struct(content, at, depth + 1)
            case _:
                raise IndexError
    return fields, at + 1


def _integer(content: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(content, at)
    return (value >> 1) ^ -(value & 1), at


def _unsigned(content: bytes, at: int) -> tuple[int, int]:
    """Return a number in parts of seven bits, the lowest first, and where it ends."""
    value = 0
    for place in range(_ENDS_AFTER):
        value |= (content[at + place] & 0x7F) << 7 * place
        if content[at + place] < 0x80:
            return value, at + place + 1
    raise IndexError
