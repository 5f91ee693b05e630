"""The footer and page headers of a Parquet file: where its pages are, and what they become in memory.

https://github.com/apache/parquet-format: both are structs in Thrift's compact protocol. The footer's totals are not
binding, and pyarrow ends the process where it contradicts itself (`terminate called`), so both are read here.
"""

from __future__ import annotations

import io
from functools import lru_cache
from typing import NamedTuple, TypeVar

import pyarrow as pa

_MAGIC, _LONGEST_FOOTER = b"PAR1", 1 << 25
_BYTE_ARRAYS = (6, 7)  # physical types: of any length, and of one length
_OF_DICTIONARY, _OF_EARLIER_VALUE = (2, 8), 7  # encodings that repeat a value of the dictionary, or the value before
_DEEPEST = 12  # structs and lists within each other
_UNCOMPRESSED, _COMPRESSED, _HEADERS, _DICTIONARY_HEADER, _SECOND = 2, 3, (5, 7, 8), 7, 8  # fields by number
_BYTES_OF_A_VALUE = 8  # in memory, beside its content
_ENDS_AFTER = 10  # bytes of the longest integer

_Value = int | bytes | list["_Value"] | dict[int, "_Value"]
_Fields = dict[int, _Value]
T = TypeVar("T", int, bytes, list[_Value], _Fields)


class Chunk(NamedTuple):
    """What the footer says of a column chunk."""

    column: str  # name of the column in the table; a struct's fields have chunks of their own
    physical_type: int  # number of its type in the format
    num_values: int
    num_bytes: int  # size of the values, decompressed
    start: int  # where its first page begins
    stored_bytes: int  # its size in the file


class Chunks(io.RawIOBase):
    """A Parquet file whose column chunks can be looked at before they are decoded, and are still read once."""

    def __init__(self, handle: pa.NativeFile) -> None:
        super().__init__()
        self._handle, self._at, self.num_bytes = handle, 0, handle.size()
        self._held: dict[int, bytes] = {}

    def groups(self) -> tuple[tuple[Chunk, ...], ...]:
        """Return the column chunks of each row group, by the footer."""
        end = self._handle.read_at(8, max(self.num_bytes - 8, 0))
        size = int.from_bytes(end[:4], "little")
        if end[4:] != _MAGIC or not size <= min(self.num_bytes - 8, _LONGEST_FOOTER):
            raise ValueError(f"a footer of {size:,} bytes in a file of {self.num_bytes:,}")
        return _groups_of(self._handle.read_at(size, self.num_bytes - 8 - size))

    def hold(self, chunk: Chunk) -> bytes:
        """Return the bytes of a column chunk, and keep them until they are read."""
        start, size = chunk.start, chunk.stored_bytes
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


def pages_of(content: bytes, chunk: Chunk) -> tuple[int, int]:
    """Return what the pages in a column chunk's bytes become in memory, by their headers.

    These are the bytes of all values, and an upper bound of a value that may be stored once and occur often, 0 if there
    is none.
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
    return num_bytes + _BYTES_OF_A_VALUE * num_values, repeated if chunk.physical_type in _BYTE_ARRAYS else 0


@lru_cache(maxsize=16)  # a file is opened for each of its row groups
def _groups_of(footer: bytes) -> tuple[tuple[Chunk, ...], ...]:
    try:
        groups = _field(_struct(footer, 0)[0], 4, list)
        columns = [[_field(chunk, 3, dict) for chunk in _field(group, 1, list)] for group in groups]
        return tuple(tuple(map(_chunk, group)) for group in columns)
    except (IndexError, KeyError, TypeError, UnicodeDecodeError):
        raise ValueError("a damaged footer") from None


def _chunk(fields: _Fields) -> Chunk:
    """Return a chunk from its fields: 1 type, 3 path, 5 values, 6 and 7 sizes, 9 first data page, 11 dictionary."""
    path = _field(fields, 3, list)[0]
    if not isinstance(path, bytes):
        raise TypeError(path)
    kind, count, size, stored, first = (_field(fields, number, int) for number in (1, 5, 6, 7, 9))
    dictionary = fields.get(11)
    start = min(first, dictionary) if isinstance(dictionary, int) and dictionary > 0 else first
    return Chunk(path.decode(), kind, count, size, start, stored)


def _field(fields: _Value, number: int, kind: type[T]) -> T:
    value = fields[number] if isinstance(fields, dict) else fields
    if not isinstance(fields, dict) or not isinstance(value, kind):
        raise TypeError(value)
    return value


def _struct(content: bytes, at: int, depth: int = 0) -> tuple[_Fields, int]:
    """Return the fields of a struct by number, and where it ends."""
    fields, number = _Fields(), 0
    while head := content[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(content, at)
        if head & 15 in (1, 2):  # a field's bool is in its head, an element's is a byte
            fields[number] = 2 - (head & 15)
        else:
            fields[number], at = _value(content, at, head & 15, depth)
    return fields, at + 1


def _value(content: bytes, at: int, kind: int, depth: int) -> tuple[_Value, int]:
    """Return a value of a kind by its number in the protocol, and where it ends."""
    match kind:
        case 1 | 2 | 3:
            return content[at], at + 1
        case 4 | 5 | 6:
            return _integer(content, at)
        case 7 | 8:
            length, at = (8, at) if kind == 7 else _unsigned(content, at)
            if at + length > len(content):
                raise IndexError
            return content[at : at + length], at + length
        case 9 | 10 if depth < _DEEPEST:
            return _list(content, at, depth + 1)
        case 12 if depth < _DEEPEST:
            return _struct(content, at, depth + 1)
    raise IndexError


def _list(content: bytes, at: int, depth: int) -> tuple[list[_Value], int]:
    length, kind, at = content[at] >> 4, content[at] & 15, at + 1
    if length == 15:
        length, at = _unsigned(content, at)
    values = []
    for _ in range(length):
        value, at = _value(content, at, kind, depth)
        values.append(value)
    return values, at


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
