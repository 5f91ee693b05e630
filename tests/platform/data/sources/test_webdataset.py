"""WebDataset: samples of tars against what was written, whatever their order; members that are no plain files."""

from __future__ import annotations

import json
import logging
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_images import encoded, put_tar

from ebclab.data.sources.decode import Reading
from ebclab.data.sources.load import load_split, open_source, splits_of
from ebclab.data.sources.location import hash_of_path
from ebclab.data.sources.webdataset import read_samples
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
        ("a/001.txt", b"x"),
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


def test_one_tar_is_a_set(shards: Path) -> None:
    one = load_split(f"webdataset:{shards / 'my-val-000.tar'}", None, "train")
    assert one.labels.tolist() == [7]


def _other(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


def test_links_devices_and_names_that_lead_out_are_left_out_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    others = [_other("x.png", tarfile.SYMTYPE), _other("y.png", tarfile.LNKTYPE), _other("z.png", tarfile.CHRTYPE)]
    outside = [
        ("../../e.png", png(1)),
        ("/f.png", png(2)),
        ("__index__/a.json", b"{}"),
        ("README", b"x"),
        ("@eaDir/x.png", b""),
    ]
    put_tar(tmp_path / "a.tar", [("d.png", png(0)), *outside], *others, _other("folder", tarfile.DIRTYPE))
    with caplog.at_level(logging.WARNING, "ebclab.data"):
        source = open_source(f"webdataset:{tmp_path}", "train", Reading())
    assert len(source.index) == 1
    told = "7 members are no files of samples and were left out: x.png, y.png, z.png, ../../e.png, /f.png and 2 more"
    assert told in caplog.text


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ([("a.cls", b"1"), ("a.txt", b"x")], "sample a has no image .jpg, .jpeg, .png, .webp or other that Pillow"),
        ([("a.png", b"1"), ("a.jpg", b"x")], r"sample a has several images, .png, .jpg; name one by data.image_column"),
        ([("a.png", png(0)), ("a.png", png(1))], "sample a has two files of one ending"),
        ([("a.png", png(0)), ("b.png", png(1)), ("a.png", png(2))], "files of a sample must follow each other, got a"),
        ([("a.png", png(0)), ("a.cls", b"x" * 1001)], "sample a needs a whole number or a word for a label, not 'xxx"),
        ([("a.png", png(0)), ("a.cls", b"9" * 19)], "whole number or a word for a label, not 9{19}"),
        ([("a.png", png(0)), ("a.json", b'{"label": [1]}')], r"whole number or a word for a label, not \[1\]"),
        ([("a.png", png(0)), ("a.json", b"{")], "a.tar: not a readable WebDataset, got Expecting"),
        ([("a.png", png(0)), ("a.json", b" " * (1 << 21))], "a.json holds 2,097,152 bytes, at most 1,048,576 are read"),
        ([("a.png", b"no image")], "a.tar, sample a: not a readable image"),
        ([], "holds no samples, got 1 empty tars"),
    ],
)
def test_what_is_no_set_of_images_is_one_sentence(
    tmp_path: Path, members: list[tuple[str, bytes]], sentence: str
) -> None:
    put_tar(tmp_path / "a.tar", members)
    with pytest.raises(DataError, match=sentence):
        open_source(f"webdataset:{tmp_path}", "train", Reading())


def test_a_name_that_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.USTAR_FORMAT, encoding="latin-1") as tar:
        tar.addfile(tarfile.TarInfo("grün.png"))
    with pytest.raises(DataError, match=r"a.tar: not a readable WebDataset, got a name that is no text in UTF-8, b'gr"):
        open_source(f"webdataset:{tmp_path}", "train", Reading())


def test_another_image_of_a_sample_is_named_by_its_ending(tmp_path: Path) -> None:
    put_tar(tmp_path / "a.tar", [("a.jpg", png(0)), ("a.Mask.png", png(1))])
    read = load_split(f"webdataset:{tmp_path}", None, "train", Reading(image_column="mask.png"))
    assert torch.equal(read.images[0], torch.from_numpy(PIXELS[1]).permute(2, 0, 1))


@pytest.mark.parametrize("cut", [0, 100, 600, 1024, 1300])  # within or after a header, within the content
@pytest.mark.parametrize("damage", ["cut off", "overwritten"])
def test_a_tar_that_is_cut_off_or_overwritten_is_named(shards: Path, cut: int, damage: str) -> None:
    tar = shards / "my-train-000.tar"
    whole = tar.read_bytes()
    block = cut // 512 * 512
    overwritten = whole[:block] + b"x" * 512 + whole[block + 512 :]
    tar.write_bytes(whole[:cut] if damage == "cut off" else overwritten)
    if damage == "overwritten" and cut == 600:  # the image itself
        with pytest.raises(DataError, match=r"my-train-000.tar, sample a/000: not a readable image"):
            open_source(f"webdataset:{shards}", "train", Reading())
        return
    with pytest.raises(DataError, match=r"my-train-000.tar: not a readable WebDataset"):
        open_source(f"webdataset:{shards}", "train", Reading())


@pytest.mark.parametrize(
    ("field", "size"),
    [((256**12 - 512).to_bytes(12, "big"), "-512"), (b"\x80" + (2**70).to_bytes(11, "big"), "1,180,")],
)
def test_a_member_whose_size_leads_nowhere_is_refused_at_once(tmp_path: Path, field: bytes, size: str) -> None:
    """With -512 bytes the next header is the same one again."""
    tar = put_tar(tmp_path / "train.tar", [("a.png", png(0)), ("a.cls", b"0")])
    header = bytearray(tarfile.TarInfo("c.txt").tobuf(tarfile.GNU_FORMAT)[:512])
    header[124:136], header[148:156] = field, b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    whole = tar.read_bytes().rstrip(b"\0")
    tar.write_bytes(whole + b"\0" * (-len(whole) % 512) + header + b"\0" * 1024)
    with pytest.raises(DataError, match=rf"not a readable WebDataset.*damaged at byte [\d,]+ \(a member of {size}"):
        open_source(f"webdataset:{tmp_path}", "train", Reading())


def test_missing_and_compressed_tars_are_told(shards: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lacks 2 tars of .*, got no my-train-002.tar; fetch them again"):
        open_source(f"webdataset:{shards}/my-train-{{000..003}}.tar", "train", Reading())
    with pytest.raises(DataError, match=r"no tar is named like .*/other-\*.tar, got my-train-000.tar"):
        open_source(f"webdataset:{shards}/other-*.tar", "train", Reading())
    with pytest.raises(DataError, match=r"a pattern of 19 characters may name 1,000,000 tars"):
        open_source(f"webdataset:{shards}/{{0..9999999999}}.tar", "train", Reading())
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed/a.tar.gz").write_bytes(b"")
    with pytest.raises(DataError, match=r"tars are needed in .*, got a.tar.gz; decompress it"):
        open_source(f"webdataset:{tmp_path}/packed", "train", Reading())


def test_a_tar_read_from_its_beginning_to_its_end_tells_the_same(shards: Path) -> None:
    for tar in shards.glob("*.tar"):
        with tar.open("rb") as whole, tar.open("rb") as seeking:
            told = read_samples(whole, "", "label", can_seek=False)
            assert told == read_samples(seeking, "", "label", can_seek=True)
            assert told[0]
