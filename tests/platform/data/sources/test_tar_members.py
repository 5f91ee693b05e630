"""Members of tars are those that Python's reader finds; crafted headers end in a sentence, soon, in little memory."""

from __future__ import annotations

import io
import random
import re
import tarfile
import time
import tracemalloc
from collections.abc import Iterator

import pytest

from ebclab.data.sources.tar_members import Tar
from ebclab.data.sources.webdataset import _without_braces
from ebclab.errors import DataError

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


class OneWay(io.BytesIO):
    """A file that cannot be sought, as the stream of a store."""

    def seek(self, *_: int) -> int:
        raise AssertionError("sought")


def made(form: int, seed: int = 0) -> bytes:
    """A tar with files of many sizes, folders, links, long names and names in other scripts."""
    source, file = random.Random(seed), io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for number in range(40):
            deep = "/".join(f"folder{source.randrange(9)}" for _ in range(source.randrange(1, 14)))
            name = f"{deep}/été-{number}.jpg" if number % 5 else f"a/{number:03}.png"
            member = tarfile.TarInfo(name if form == tarfile.USTAR_FORMAT or number % 7 else f"{'long' * 60}/{name}")
            if number % 11 == 3:
                member.type = tarfile.DIRTYPE
            elif number % 11 == 5:
                member.type, member.linkname = tarfile.SYMTYPE, "a/000.png"
            content = source.randbytes(source.choice([0, 1, 511, 512, 513, 3000])) if member.isreg() else b""
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


@pytest.mark.parametrize("can_seek", [True, False])
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_members_and_contents_are_those_of_pythons_reader(form: int, can_seek: bool) -> None:
    content = made(form)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        expected = [
            (member.name, "file" if member.isreg() else "folder" if member.isdir() else "other", member.offset_data)
            for member in tar
        ]
        texts = [opened.read() for member in tar if member.isreg() and (opened := tar.extractfile(member))]
    own = Tar(io.BytesIO(content) if can_seek else OneWay(content), can_seek=can_seek)
    found, read = [], []
    for member in own:
        found.append((member.name.rstrip("/"), member.kind, member.offset))
        if member.kind == "file":
            read.append(own.read(member.offset, member.size))
    assert found == expected
    assert read == texts


def header(kind: bytes, size: int | bytes, name: bytes = b"x") -> bytes:
    """A header with a right checksum, whatever else is in it."""
    digits = size if isinstance(size, bytes) else f"{size:011o}\0".encode()
    block = bytearray(name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + digits + b"00000000000\0")
    block += b" " * 8 + kind + b"\0" * 100 + b"ustar\x0000"
    block += b"\0" * (512 - len(block))
    block[148:156] = f"{sum(block):06o}\0 ".encode()
    return bytes(block)


def padded(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % 512)


def big(number: int) -> bytes:
    """A size as GNU tar writes what has too many octal digits."""
    return b"\x80" + number.to_bytes(11, "big")


PAX = b"1" * 200_000 + b" path=x\n"
BOMBS = {
    "200,000 digits": header(b"x", len(PAX)) + padded(PAX),
    "60 GB of a pax header": header(b"x", 60 << 30) + b"\0" * 1024,
    "4 EB of a long name": header(b"L", big(1 << 62)) + b"\0" * 1024,
    "20,000 headers": (header(b"x", 12) + padded(b"12 path=abc\n")) * 20_000,
    "a negative size": header(b"0", b"\xff" * 12),
    "a size that is no number": header(b"0", b"99999999999\0"),
    "a record without end": header(b"x", 20) + padded(b"999 path=abc\n"),
    "a record of no length": header(b"x", 20) + padded(b"0 path=abc\n"),
    "a size of many digits": header(b"x", 40) + padded(b"40 size=" + b"9" * 31 + b"\n") + header(b"0", 0),
    "a wrong checksum": b"y" + header(b"0", 0)[1:],
    "cut off in a header": header(b"0", 0)[:300],
    "no text": header(b"0", 0, b"\xff\xfe") + b"\0" * 1024,
    "a long name": header(b"L", 60_000) + padded(b"n" * 60_000) + header(b"0", 0) + b"\0" * 1024,
}


@pytest.mark.parametrize("can_seek", [True, False])
@pytest.mark.parametrize("bomb", BOMBS)
def test_crafted_headers_are_refused_soon_and_in_little_memory(bomb: str, can_seek: bool) -> None:
    file = (io.BytesIO if can_seek else OneWay)(BOMBS[bomb])
    begun = time.process_time()
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"\S"):
        list(Tar(file, can_seek=can_seek))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20
    assert time.process_time() - begun < 10  # Python's own reader takes minutes for the digits


def damaged(content: bytes, seed: int) -> bytes:
    source, changed = random.Random(seed), bytearray(content)
    for _ in range(source.randrange(1, 4)):
        place = source.choice([source.randrange(len(changed)), 512 * source.randrange(len(changed) // 512) + 124])
        changed[place] = source.randrange(256)
    return bytes(changed[: source.choice([len(changed), source.randrange(len(changed))])])


def test_damaged_tars_have_members_or_end_in_a_sentence() -> None:
    content, refused = made(tarfile.PAX_FORMAT)[:20_480], 0
    for seed in range(300):
        try:
            for member in Tar(io.BytesIO(damaged(content, seed)), can_seek=True):
                assert member.size >= 0
        except ValueError as error:
            refused += 1
            assert re.search("damaged|cut off|name", str(error))  # noqa: PT017
    assert refused > 100


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("{0..999990}" + "x" * 20_000, "a pattern of 20,011 characters may name 9,994 tars"),
        ("{a,b}" * 60, "may name 666,666 tars"),
        ("{0.." + "9" * 5000 + "}.tar", ""),
    ],
)
def test_braces_stand_for_so_many_names_as_memory_has_room_for(pattern: str, said: str) -> None:
    if not said:
        assert _without_braces(pattern) == [pattern.replace("{", "").replace("}", "")]
        return
    with pytest.raises(DataError, match=said) as refused:
        _without_braces(pattern)
    assert len(str(refused.value)) < 400


def test_braces_are_those_of_a_shell() -> None:
    def slow(pattern: str) -> Iterator[str]:
        match = re.search(r"\{([^{}]*)\}", pattern)
        if match is None:
            yield pattern
            return
        bounds = re.fullmatch(r"(\d+)\.\.(\d+)", match[1])
        words = match[1].split(",")
        if bounds:
            words = [f"{number:0{len(bounds[1])}}" for number in range(int(bounds[1]), int(bounds[2]) + 1)]
        for word in words:
            yield from slow(pattern[: match.start()] + word + pattern[match.end() :])

    for pattern in ("a-{000..012}.tar", "{a,b}/{1..3}.tar", "x.tar", "{train,val}-{08..11}.tar"):
        assert _without_braces(pattern) == sorted(slow(pattern))
