"""The members of a tar, header by header: none makes the reader take more memory or time than the file's size allows.

Headers are those of POSIX (ustar, pax) and of GNU tar: https://www.gnu.org/software/tar/manual/html_node/Standard.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, Literal, NamedTuple

_BLOCK = 512
_LARGEST_EXTENSION = 64 << 10  # bytes of a header that holds a long name or other fields of the next one
_MOST_EXTENSIONS = 8  # of one member
_LONGEST_NAME = 4096  # bytes, as on Linux
_FARTHEST = 1 << 62  # bytes from the beginning; files cannot be sought beyond 2^63
_SKIPPED_BYTES = 8 << 20  # read at once where a tar cannot be sought

_PLAIN, _FOLDER, _SPARSE = b"0\0", b"5", b"S"
_WITHOUT_CONTENT = b"123456"  # links, devices, folders and pipes, whatever size they state
_OF_ONE, _OF_ALL, _LONG_NAME, _LONG_LINK = b"xX", b"g", b"L", b"K"
_EXTENSIONS = _OF_ONE + _OF_ALL + _LONG_NAME + _LONG_LINK
_DIGITS = re.compile(rb"[0-9]{1,19}")
_OCTAL = re.compile(rb"[0-7]*")
_LENGTH = re.compile(rb"([1-9][0-9]{0,5}) ")


class Member(NamedTuple):
    """A member of a tar."""

    name: str  # its path
    kind: Literal["file", "folder", "other"]  # the last for links, devices, sparse files and all else
    offset: int  # position of its content's first byte in the tar
    size: int  # bytes of its content


class Tar:
    """An open tar; iterating over it gives its members.

    One that cannot be sought is read from beginning to end, and ``read`` only goes forwards.
    """

    def __init__(self, file: IO[bytes], *, can_seek: bool) -> None:
        self._file, self._can_seek, self._place = file, can_seek, 0

    def __iter__(self) -> Iterator[Member]:
        place, of_all = 0, dict[bytes, bytes]()
        while any(header := self.read(place, _BLOCK)):  # zeros are the end
            own, extensions = dict[bytes, bytes](), 0
            while (kind := _checked_kind(header, place)) in _EXTENSIONS:
                size = _number(header[124:136], place)
                extensions += 1
                if size > _LARGEST_EXTENSION or extensions > _MOST_EXTENSIONS:
                    raise ValueError(
                        f"at byte {place:,} an extended header of {size:,} bytes, number {extensions} of a member; at "
                        f"most {_MOST_EXTENSIONS} of {_LARGEST_EXTENSION:,} bytes are read"
                    )
                content = self.read(place + _BLOCK, size)
                if kind in _OF_ALL:
                    of_all |= _records(content, place)
                elif kind not in _LONG_LINK:
                    own = ({b"path": _text(content)} if kind in _LONG_NAME else _records(content, place)) | own
                place += _BLOCK + _padded(size)
                header = self.read(place, _BLOCK)
            start, records = place + _BLOCK, of_all | own
            size = _number(records.get(b"size") or header[124:136], place, decimal=bool(records.get(b"size")))
            extended = kind in _SPARSE and header[482]
            while extended:
                extended = self.read(start, _BLOCK)[504]
                start += _BLOCK
            yield _member(header, kind, records, start, size)
            place = start + (0 if kind in _WITHOUT_CONTENT else _padded(size))

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``."""
        if self._can_seek and offset != self._place:
            self._file.seek(offset)
            self._place = offset
        while self._place < offset and self._next(min(offset - self._place, _SKIPPED_BYTES)):
            pass
        parts = []
        while self._place < offset + size and (part := self._next(offset + size - self._place)):
            parts.append(part)
        if self._place < offset + size:
            raise ValueError(f"cut off at byte {self._place:,}, {size:,} bytes from {offset:,} were expected")
        return b"".join(parts)

    def _next(self, most: int) -> bytes:
        part = self._file.read(most)
        self._place += len(part)
        return part


def _member(header: bytes, kind: bytes, records: dict[bytes, bytes], start: int, size: int) -> Member:
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else b""
    raw = records.get(b"path") or (prefix + b"/" if prefix else b"") + _text(header[:100])
    if len(raw) > _LONGEST_NAME:
        raise ValueError(f"a name of {len(raw):,} bytes, at most {_LONGEST_NAME:,} are read")
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"a name that is not UTF-8, {raw[:100]!r}") from None
    if kind in _FOLDER or (kind == b"\0" and name.endswith("/")):
        return Member(name, "folder", start, size)
    is_sparse = any(key.startswith(b"GNU.sparse") for key in records)
    return Member(name, "file" if kind in _PLAIN and not is_sparse else "other", start, size)


def _checked_kind(header: bytes, place: int) -> bytes:
    """Return the type of a header whose checksum is right."""
    if _number(header[148:156], place) != sum(header) - sum(header[148:156]) + 8 * ord(" "):
        raise ValueError(f"cut off or damaged at byte {place:,} (a header with a wrong checksum)")
    return header[156:157]


def _number(field: bytes, place: int, *, decimal: bool = False) -> int:
    """Return a number of a header: octal digits, or bytes after one that says so; of a record, decimal digits."""
    if decimal:
        value = int(field) if _DIGITS.fullmatch(field) else -1
    elif field[:1] in (b"\x80", b"\xff"):
        value = int.from_bytes(field if field[0] == 0xFF else field[1:], "big", signed=field[0] == 0xFF)
    else:
        digits = _text(field).strip()
        value = int(digits or b"0", 8) if _OCTAL.fullmatch(digits) else -1
    if not 0 <= value < _FARTHEST:  # a negative size would have the same header read for ever
        raise ValueError(f"cut off or damaged at byte {place:,} (a member of {value:,} bytes)")
    return value


def _records(content: bytes, place: int) -> dict[bytes, bytes]:
    """Return the fields of an extended header of POSIX: lines "LENGTH KEY=VALUE"."""
    records, at = dict[bytes, bytes](), 0
    while at < len(content) and content[at]:
        length = _LENGTH.match(content, at)
        end = at + int(length[1]) if length else 0
        record = content[length.end() : end] if length and end <= len(content) else b""
        key, equals, value = record[:-1].partition(b"=")
        if not equals or record[-1:] != b"\n":
            raise ValueError(f"cut off or damaged at byte {place:,} (an extended header)")
        records[key] = value
        at = end
    return records


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK
