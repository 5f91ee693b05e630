"""WebDataset: samples against what was written; members of tars are those of Python's reader, or refused soon."""

import io
import json
import logging
import random
import tarfile
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_images import encoded, put_tar

from ebclab.data.photograph import Reading
from ebclab.data.sources import webdataset
from ebclab.data.sources.load import load_split, open_source, splits_of
from ebclab.data.sources.location import hash_of_path
from ebclab.data.sources.webdataset import _NAME, Tar, _without_braces
from ebclab.errors import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 5, 5, 3), dtype=np.uint8)


def png(number: int) -> bytes:
    return encoded(PIXELS[number])


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two training shards and one of validation, with labels in .cls, in .json and none."""
    first = [
        ("a/000.png", png(0)),
        ("a/000.cls", b"3\n"),
        ("a/001.cls", b"0"),
        ("a/001.txt", b""),
        ("a/001.png", png(1)),
    ]
    second = [("b.png", png(2)), ("b.json", json.dumps({"label": 7}).encode()), ("c.PNG", png(3)), ("c.json", b'["a"]')]
    put_tar(tmp_path / "my-train-000.tar", first)
    put_tar(tmp_path / "my-train-001.tar", second)
    put_tar(tmp_path / "my-val-000.tar", [("a/000.png", png(4)), ("a/000.cls", b"7")])
    return tmp_path


def test_samples_have_the_pixels_labels_and_keys_that_their_names_tell(shards: Path) -> None:
    name = f"webdataset:{shards}"
    train, test = (load_split(name, None, split) for split in ("train", "test"))
    assert torch.equal(train.images, torch.from_numpy(PIXELS[:4]).permute(0, 3, 1, 2))
    assert train.labels.tolist() == [3, 0, 7, -1]
    names = ["my-train-000.tar/a/000", "my-train-000.tar/a/001", "my-train-001.tar/b", "my-train-001.tar/c"]
    assert train.keys.tolist() == [hash_of_path(each) for each in names]
    assert test.labels.tolist() == [7]
    assert splits_of(name) == ("train", "test")
    grey = open_source(name, "train", Reading(label_column="class", colour="grey"))
    assert grey.index.labels.tolist() == [3, 0, -1, -1]
    assert grey.example.shape == (1, 5, 5)


@pytest.mark.parametrize(
    ("pattern", "count"),
    [("my-train-{000..001}.tar", 4), ("my-train-*.tar", 4), ("my-{train,val}-000.tar", 2), ("my-train-00?.tar", 4)],
)
def test_patterns_name_tars(shards: Path, pattern: str, count: int) -> None:
    found = open_source(f"webdataset:{shards}/{pattern}", "train", Reading())
    assert len(found.index) == count
    assert set(found.index.keys.tolist()) <= set(load_split(f"webdataset:{shards}", None, "train").keys.tolist())


NAMES = {
    "a.b.jpg": ("a", "b.jpg"),
    "img_22.05.png": ("img_22", "05.png"),
    "a/b.c/d.jpg": ("a/b.c/d", "jpg"),
    "a/b.c/d.e.png": ("a/b.c/d", "e.png"),
    "a.b/c.jpg": ("a.b/c", "jpg"),
    "./a.jpg": ("./a", "jpg"),
    "a..jpg": ("a", ".jpg"),
    "x.JPG": ("x", "jpg"),
    "été.v1.jpg": ("été", "v1.jpg"),
    ".h.jpg": None,
    "a/noext": None,
    "a/b.c/.d": None,
}
"""Keys and endings by ``webdataset`` 1.0.2, which lowers endings when it groups the files of a sample."""


def test_names_are_split_as_the_library_splits_them() -> None:
    matches = {name: _NAME.fullmatch(name) for name in NAMES}
    assert {name: match and (match[1], match[2].lower()) for name, match in matches.items()} == NAMES


def _other(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


def test_links_devices_and_names_that_lead_out_are_left_out_and_told(tmp_path, caplog):
    others = [_other("x.png", tarfile.SYMTYPE), _other("y.png", tarfile.LNKTYPE), _other("z.png", tarfile.CHRTYPE)]
    outside = [
        ("../../e.png", b""),
        ("/f.png", b""),
        ("__index__/a.json", b"{}"),
        ("README", b""),
        ("@eaDir/x.png", b""),
    ]
    put_tar(tmp_path / "a.tar", [("d.png", png(0)), *outside], *others, _other("folder", tarfile.DIRTYPE))
    with caplog.at_level(logging.WARNING, "ebclab.data"):
        source = open_source(f"webdataset:{tmp_path}", "train", Reading())
    assert len(source.index) == 1
    told = "7 members are not files of samples and were left out: x.png, y.png, z.png, ../../e.png, /f.png and 2 more"
    assert told in caplog.text


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ([("a.cls", b"1"), ("a.txt", b"x")], "sample a has no image .jpg, .jpeg, .png, .webp or other that Pillow"),
        ([("a.png", b"1"), ("a.jpg", b"x")], r"sample a has several images, .png, .jpg; name one by data.image_column"),
        ([("a.png", png(0)), ("a.png", png(1))], "sample a has two files of one ending"),
        # webdataset#140: tars that are not sorted
        ([("a.png", png(0)), ("b.png", png(1)), ("a.cls", b"1")], r"must follow .*, got a again \(tar --sort=name"),
        ([("a.png", png(0)), ("a.cls", b"x" * 1001)], "sample a needs a whole number or a word for a label, not 'xxx"),
        ([("a.png", png(0)), ("a.cls", b"9" * 19)], "whole number or a word for a label, not 9{19}"),
        ([("a.png", png(0)), ("a.json", b'{"label": [1]}')], r"whole number or a word for a label, not \[1\]"),
        ([("a.png", png(0)), ("a.json", b"{")], "a.tar: not a readable WebDataset, got Expecting"),
        ([("a.png", png(0)), ("a.json", b" " * (1 << 21))], "a.json holds 2,097,152 bytes, at most 1,048,576 are read"),
        ([("a.png", b"no image")], "a.tar, sample a: not a readable image"),
        ([], "holds no samples, got 1 empty tars"),
    ],
)
def test_what_is_no_set_of_images_is_one_sentence(tmp_path, members, sentence):
    put_tar(tmp_path / "a.tar", members)
    with pytest.raises(DataError, match=sentence):
        open_source(f"webdataset:{tmp_path}", "train", Reading())


def test_another_image_of_a_sample_is_named_by_its_ending(tmp_path: Path) -> None:
    put_tar(tmp_path / "a.tar", [("a.jpg", png(0)), ("a.Mask.png", png(1))])
    read = load_split(f"webdataset:{tmp_path}", None, "train", Reading(image_column="mask.png"))
    assert torch.equal(read.images[0], torch.from_numpy(PIXELS[1]).permute(2, 0, 1))


def test_missing_and_compressed_tars_are_told(shards: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lacks 2 tars of .*, got no my-train-002.tar; fetch them again"):
        open_source(f"webdataset:{shards}/my-train-{{000..003}}.tar", "train", Reading())
    with pytest.raises(DataError, match=r"no tar is named like .*/other-\*.tar, got my-train-000.tar"):
        open_source(f"webdataset:{shards}/other-*.tar", "train", Reading())
    with pytest.raises(DataError, match=r"a pattern of 19 characters may name 1,000,000 tars"):
        open_source(f"webdataset:{shards}/{{0..9999999999}}.tar", "train", Reading())
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed/a.tar.gz").write_bytes(b"")
    with pytest.raises(DataError, match=r"files that end in .tar are needed in .*, got none, only 1 .gz; unpack it"):
        open_source(f"webdataset:{tmp_path}/packed", "train", Reading())


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
    "60 GB of a pax header": header(b"x", big(60 << 30)) + b"\0" * 1024,
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


TOO_MUCH = ("200,000 digits", "60 GB of a pax header", "20,000 headers")
"""Bombs that are refused before their content is read; the others, for what they say."""


@pytest.mark.parametrize("can_seek", [True, False])
@pytest.mark.parametrize("bomb", BOMBS)
def test_crafted_headers_are_refused_soon_and_in_little_memory(bomb: str, can_seek: bool) -> None:
    file = (io.BytesIO if can_seek else OneWay)(BOMBS[bomb])
    begun = time.process_time()
    tracemalloc.start()
    said = r"cut off or damaged at byte|cut off at byte|at most .* are read|not UTF-8"
    with pytest.raises(ValueError, match="at most 8 of 65,536 bytes are read" if bomb in TOO_MUCH else said):
        list(Tar(file, can_seek=can_seek))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20
    assert time.process_time() - begun < 10  # Python's own reader takes minutes for the digits


BRACES = {
    "a-{008..011}.tar": ["a-008.tar", "a-009.tar", "a-010.tar", "a-011.tar"],
    "{b,a}/{1..2}.tar": ["a/1.tar", "a/2.tar", "b/1.tar", "b/2.tar"],
    "x.tar": ["x.tar"],
    "{0.." + "9" * 5000 + "}.tar": ["0.." + "9" * 5000 + ".tar"],
}


def test_braces_are_those_of_a_shell_with_numbers_of_at_most_18_digits() -> None:
    assert {pattern: _without_braces(pattern) for pattern in BRACES} == BRACES


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("{0..999990}" + "x" * 20_000, "a pattern of 20,011 characters may name 99 tars"),
        ("{a,b}" * 60, "may name 6,666 tars"),
    ],
)
def test_braces_stand_for_so_many_names_as_memory_has_room_for(monkeypatch, pattern, said):
    monkeypatch.setattr(webdataset, "_MOST_CHARACTERS", 2_000_000)
    with pytest.raises(DataError, match=said) as refused:
        _without_braces(pattern)
    assert len(str(refused.value)) < 400
