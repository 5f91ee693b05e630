"""The samples of a tar as WebDataset writes it: files of one name in a row, each with an ending of its own.

    000017.jpg  000017.cls  000018.jpg  000018.json ...

The ending of a file is everything after the first dot of its name. Nothing is unpacked: only the position of an
image's bytes is kept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import IO, NamedTuple

from ebclab.data.class_labels import LONGEST_WORD
from ebclab.data.photograph import image_suffixes
from ebclab.data.sources.location import is_by_product
from ebclab.data.sources.shards.tar_members import Tar
from ebclab.storage.reading import foreign_json_value

_USUAL_ENDINGS = ("jpg", "jpeg", "png", "webp")  # taken for the image of a sample before others that Pillow decodes

_NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]*)")
_OF_THE_SET = re.compile(r"__[^/]*__(/|$)")  # such as __index__/..., which belong to no sample
_LARGEST_LABEL = 1 << 20  # bytes of a file .cls or .json
_LARGEST_INTEGER = 1 << 63


class Sample(NamedTuple):
    """One sample.

    Attributes:
        name: WebDataset's ``__key__``.
        offset: Position of the image's first byte in the tar.
        size: Number of its bytes.
        label: Number or name of its class; -1 where unknown.
    """

    name: str
    offset: int
    size: int
    label: int | str


class _Member(NamedTuple):
    sample: str
    ending: str
    offset: int
    size: int
    content: bytes  # of endings that hold labels; else empty


def read_samples(
    file: IO[bytes], image_ending: str, label_field: str, *, can_seek: bool
) -> tuple[list[Sample], list[str]]:
    """Return the samples of a tar, and the names of members that were left out.

    Links, devices and other members that are not plain files are left out, names that lead out of the tar or have no
    ending, and thumbnails of file managers. Hidden files are left out without being named.

    Args:
        image_ending: Ending of the file with the image; empty: any that Pillow decodes.
        label_field: Key of the label in a sample's .json, where it has no .cls.
        can_seek: Read only headers and labels; otherwise the tar is read from beginning to end.
    """
    left_out: list[str] = []
    members = _members(file, left_out, can_seek=can_seek)
    samples = [
        _sample(name, list(group), image_ending, label_field) for name, group in groupby(members, lambda m: m.sample)
    ]
    return samples, left_out


def _members(file: IO[bytes], left_out: list[str], *, can_seek: bool) -> Iterator[_Member]:
    tar = Tar(file, can_seek=can_seek)
    for member in tar:
        if member.kind == "folder" or _OF_THE_SET.match(member.name):
            continue
        match = _NAME.fullmatch(member.name)
        if member.kind != "file" or _leads_out(member.name) or is_by_product(member.name) or not match:
            if not member.name.rpartition("/")[2].startswith("."):
                left_out.append(member.name)
            continue
        ending, content = match[2].lower(), b""
        if ending in ("cls", "json"):
            if member.size > _LARGEST_LABEL:
                raise ValueError(f"{member.name} holds {member.size:,} bytes, at most {_LARGEST_LABEL:,} are read")
            content = tar.read(member.offset, member.size)
        yield _Member(match[1], ending, member.offset, member.size, content)


def _leads_out(name: str) -> bool:
    return name.startswith("/") or ".." in name.split("/")


def _sample(name: str, members: list[_Member], image_ending: str, label_field: str) -> Sample:
    files = {member.ending: member for member in members}
    if len(files) < len(members):
        raise ValueError(f"sample {name} has two files of one ending")
    usual = (image_ending,) if image_ending else _USUAL_ENDINGS
    images = [ending for ending in files if ending in usual]
    if not images and not image_ending:
        images = [ending for ending in files if f".{ending}" in image_suffixes()]
    if not images:
        wanted = ", ".join(f".{ending}" for ending in usual) + ("" if image_ending else " or other that Pillow decodes")
        raise ValueError(f"sample {name} has no image {wanted}, only .{', .'.join(files)}")
    if len(images) > 1:
        raise ValueError(f"sample {name} has several images, .{', .'.join(images)}; name one by data.image_column")
    image = files[images[0]]
    return Sample(name, image.offset, image.size, _label(name, files, label_field))


def _label(name: str, files: dict[str, _Member], label_field: str) -> int | str:
    """Return the number or word in .cls, else in a field of .json, else -1."""
    if "cls" in files:
        text = files["cls"].content.decode().strip()
        label: object = int(text) if re.fullmatch(r"-?[0-9]{1,19}", text) else text
    elif "json" in files:
        told = foreign_json_value(files["json"].content)
        label = told.get(label_field, -1) if isinstance(told, dict) else -1
    else:
        label = -1
    match label:
        case None:
            return -1
        case str() if len(label) <= LONGEST_WORD:
            return sys.intern(label)  # the same for many samples
        case bool():
            return str(label).lower()
        case int() | float() if -_LARGEST_INTEGER <= label < _LARGEST_INTEGER and label == int(label):
            return int(label)
    raise ValueError(f"sample {name} needs a whole number or a word for a label, not {label!r:.80}")
