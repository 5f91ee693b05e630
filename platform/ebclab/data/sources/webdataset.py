"""WebDataset: tars of samples, which can be read in any order once the positions of all images are known.

    000017.jpg  000017.cls  000018.jpg  000018.json ...

The files of a sample follow each other and have one name, which ends at its first dot; the ending of a file is all that
follows. Nothing is unpacked: only the position of an image's bytes is kept. The members of a tar are read header by
header, of POSIX (ustar, pax) or of GNU tar, https://www.gnu.org/software/tar/manual/html_node/Standard.html: none makes
the reader take more memory or time than the file's size allows.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain, groupby, islice
from typing import IO, Literal, NamedTuple

import torch

from ebclab.config.addresses import is_address
from ebclab.data.class_labels import Labels, comparable, label_of, of_values, of_words
from ebclab.data.image_set import digest_of_files
from ebclab.data.photograph import Reading, image_suffixes
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.image_source import EncodedSource, RowIndex
from ebclab.data.sources.location import (
    any_word,
    files_ending,
    files_of_split,
    hash_of_path,
    is_by_product,
    parts_within,
    tell_once,
    tell_unlabelled,
)
from ebclab.errors import DataError
from ebclab.formatting import first_few
from ebclab.storage.filesystem import Location
from ebclab.storage.reading import foreign_json_value

_BLOCK = 512
_LARGEST_EXTENSION = 64 << 10  # bytes of a header that holds a long name or other fields of the next one
_MOST_EXTENSIONS = 8  # of one member
_LONGEST_NAME = 4096  # bytes, as on Linux
_FARTHEST = 1 << 62  # bytes from the beginning; files cannot be sought beyond 2^63
_SKIPPED_BYTES = 8 << 20  # read at once where a tar cannot be sought
_MOST_ZEROS = 1 << 11  # blocks after the end of a tar, which has 20 at most as tar writes it

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
        of_all = dict[bytes, bytes]()
        place, header = self._next_header(0)
        while header:
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
            place, header = self._next_header(start + (0 if kind in _WITHOUT_CONTENT else _padded(size)))

    def _next_header(self, place: int) -> tuple[int, bytes]:
        """Return the first block from ``place`` that is not of zeros, and its place; empty at the end of the file.

        Zeros end a tar, and another may be joined to it.
        """
        header = self.read(place, _BLOCK)
        for _ in range(_MOST_ZEROS):
            if any(header):
                return place, header
            place += _BLOCK
            if len(header := self._up_to(place, _BLOCK)) < _BLOCK:
                break
        return place, b""

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``."""
        content = self._up_to(offset, size)
        if len(content) < size:
            raise ValueError(f"cut off at byte {self._place:,}, {size:,} bytes from {offset:,} were expected")
        return content

    def _up_to(self, offset: int, size: int) -> bytes:
        if self._can_seek and offset != self._place:
            self._file.seek(offset)
            self._place = offset
        while self._place < offset and self._next(min(offset - self._place, _SKIPPED_BYTES)):
            pass
        parts = []
        while self._place < offset + size and (part := self._next(offset + size - self._place)):
            parts.append(part)
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


_FORM = "WebDataset"
_TAR = ".tar"
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"([0-9]{1,18})\.\.([0-9]{1,18})")
_MOST_NAMES = 1_000_000  # that braces stand for
_MOST_CHARACTERS = 200_000_000  # of these names together
_MOST_MATCHES = 10_000_000  # of names with * or ? and files that each is compared with
_MOST_WILD = 1_000  # of the former: each is compiled
_SHOWN = 200  # characters of a pattern in a message
_INDEX_THREADS = 8  # they wait for storage
_SEQUENTIAL_BYTES = 8 << 20  # read at once from a store
_NAMES_SHOWN = 5
_USUAL_COLUMN = Reading().image_column
_USUAL_ENDINGS = ("jpg", "jpeg", "png", "webp")  # taken for the image of a sample before others that Pillow decodes

_NAME = re.compile(r"((?:.*/)?[^./]+)\.([^/]*)")
_OF_THE_SET = re.compile(r"__[^/]*__(/|$)")  # such as __index__/..., which belong to no sample
_LARGEST_LABEL = 1 << 20  # bytes of a file .cls or .json

_log = logging.getLogger("ebclab.data")


class WebdatasetSource(EncodedSource):
    """One split of a tar, a folder of tars or a pattern such as /data/train-{000..099}.tar; each image is a group.

    The key of an image is the hash of its shard's path within the split and of its name in it. Its label is the number
    or word in its .cls, else that in the field ``data.label_column`` of its .json, else -1; where no image has a label,
    its folder in the tar is its class. If samples have several images, ``data.image_column`` chooses one by its ending.
    """

    def __init__(self, name: str, path: str, split: Split, reading: Reading) -> None:
        self.name, self.reading = name, reading
        self._place, sizes = shards_at(path)
        shards = files_of_split(list(sizes), split, name, any_word)
        self._shards = list(shards)
        self.files_digest = digest_of_files({inside: sizes[file] for file, inside in shards.items()})
        self._others = set[str]()
        with ThreadPoolExecutor(_INDEX_THREADS) as pool:
            of_shards = list(pool.map(self._read_shard, shards))
        samples = list(chain.from_iterable(of_shards))
        if not samples:
            raise DataError(f"data.name: {name} holds no samples, got {len(shards)} empty tars in {self._place.path}")
        self._names = [sample.name for sample in samples]
        labels = self._labels([sample.label for sample in samples])
        self.class_names = labels.names
        counts = torch.tensor([len(each) for each in of_shards])
        self._shard_of = torch.repeat_interleave(torch.arange(len(counts)), counts)
        self._bytes_of = torch.tensor([(sample.offset, sample.size) for sample in samples])
        paths = [
            f"{inside}/{each.name}" for inside, part in zip(shards.values(), of_shards, strict=True) for each in part
        ]
        self.index = RowIndex.grouped(torch.tensor([hash_of_path(each) for each in paths]), labels.numbers)
        self.example = self._first_example()

    def encoded(self, group: int, places: Sequence[int]) -> Iterator[tuple[str, bytes]]:
        file = self._shards[int(self._shard_of[group])]
        offset, size = self._bytes_of[group].tolist()
        with (
            self._reading_of(file, _FORM),
            self._place.filesystem.open_input_file(self._place.inner_path(file)) as tar,
        ):
            content = tar.read_at(size, offset)
        yield from [(f"{self._where(file)}, sample {self._names[group]}", content)] * len(places)

    def _read_shard(self, file: str) -> list[_Sample]:
        filesystem, inside = self._place.filesystem, self._place.inner_path(file)
        column = self.reading.image_column
        image_ending = "" if column == _USUAL_COLUMN else column.lower()
        can_seek = self._place.is_local
        with (
            self._reading_of(file, _FORM),
            filesystem.open_input_file(inside)
            if can_seek
            else filesystem.open_input_stream(inside, compression=None, buffer_size=_SEQUENTIAL_BYTES) as opened,
        ):
            samples, left_out, others = _read_samples(opened, self.reading, image_ending, can_seek=can_seek)
        self._others |= others
        if left_out:
            shown = first_few(left_out, _NAMES_SHOWN)
            _log.warning(
                "%s: %d members are not files of samples and were left out: %s", self._where(file), len(left_out), shown
            )
        return samples

    def _labels(self, given: list[int | str]) -> Labels:
        """Return the labels that the samples have, or those of their folders, which may not be parts of the set."""
        every = dict.fromkeys(name.rpartition("/")[0] for name in self._names)  # far fewer than names
        folders = {each: posixpath.normpath(f"tar/{each}") for each in every}
        if parts_within(folders.values()):
            raise DataError(
                f"data.name: {self.name} has test images among those for training, got folders train and test in its "
                "tars; write tars of each part, or unpack them and read them by folder:"
            )
        labels = of_values(given, self._place.path)
        self._classes_are_folders = False
        shared = len(posixpath.commonpath(folders.values())) + 1
        classes = {each: folder[shared:].partition("/")[0] for each, folder in folders.items()}
        if bool((labels.numbers >= 0).any()):
            return labels
        if len({*classes.values()} - {""}) < 2:
            if self._others:
                tell_once(
                    f"{self.name}: its samples have no .cls and no {self.reading.label_column} in .json, so their "
                    f"images have no labels, got files {first_few(sorted(self._others), _NAMES_SHOWN)}"
                )
            return labels
        tell_once(f"{self.name}: its samples have no .cls and no label in .json, so their folders are their classes")
        self._classes_are_folders = True
        return of_words(classes[name.rpartition("/")[0]] for name in self._names)

    def name_classes_as(self, training: WebdatasetSource) -> None:
        """Label the samples of a part without labels by those of their folders that are classes in training."""
        if not training._classes_are_folders or bool((self.index.labels >= 0).any()):
            return
        known = {comparable(name): name for name in training.class_names}
        parts = ([*map(comparable, name.split("/")[:-1])] for name in self._names)
        labels = of_words(next((known[each] for each in part if each in known), "") for part in parts)
        self.index, self.class_names = replace(self.index, labels=labels.numbers), labels.names
        tell_unlabelled(self.name, "test", labels.numbers)


class _Sample(NamedTuple):
    """One sample."""

    name: str  # WebDataset's ``__key__``
    offset: int  # position of the image's first byte in the tar
    size: int  # number of its bytes
    label: int | str  # number or name of its class; -1 where unknown


class _NoImageError(ValueError):
    """A sample has no image."""


class _Member(NamedTuple):
    sample: str
    ending: str
    offset: int
    size: int
    content: bytes  # of endings that hold labels; else empty


def _read_samples(
    file: IO[bytes], reading: Reading, image_ending: str, *, can_seek: bool
) -> tuple[list[_Sample], list[str], set[str]]:
    """Return the samples of a tar, the names of members left out, and other endings in samples without a label.

    Links, devices and other members that are not plain files are left out, names that lead out of the tar or have no
    ending, and thumbnails of file managers. Hidden files are left out without being named.

    Args:
        image_ending: Ending of the file with the image; empty: any that Pillow decodes.
        can_seek: Read only headers and labels; otherwise the tar is read from beginning to end.
    """
    left_out, others = list[str](), set[str]()
    members = _members(file, left_out, can_seek=can_seek)
    samples: dict[str, _Sample] = {}
    for name, grouped in groupby(members, lambda m: m.sample):
        group = list(grouped)
        if name in samples:
            raise ValueError(f"files of a sample must follow each other, got {name} again (tar --sort=name sorts them)")
        try:
            samples[name] = sample = _sample(name, group, image_ending, reading.label_column)
            if sample.label == -1:
                others |= {f".{member.ending}" for member in group if member.offset != sample.offset}
        except _NoImageError:
            if not reading.skip_corrupt:
                raise
            left_out.append(f"{name} (no image)")
    return list(samples.values()), left_out, others


def _members(file: IO[bytes], left_out: list[str], *, can_seek: bool) -> Iterator[_Member]:
    tar = Tar(file, can_seek=can_seek)
    for member in tar:
        if member.kind == "folder" or _OF_THE_SET.match(member.name):
            continue
        match = _NAME.fullmatch(member.name)
        leads_out = member.name.startswith("/") or ".." in member.name.split("/")
        if member.kind != "file" or leads_out or is_by_product(member.name) or not match:
            if not member.name.rpartition("/")[2].startswith("."):
                left_out.append(member.name)
            continue
        ending, content = match[2].lower(), b""
        if ending.rpartition(".")[2] in ("cls", "json"):
            if member.size > _LARGEST_LABEL:
                raise ValueError(f"{member.name} holds {member.size:,} bytes, at most {_LARGEST_LABEL:,} are read")
            content = tar.read(member.offset, member.size)
        yield _Member(match[1], ending, member.offset, member.size, content)


def _sample(name: str, members: list[_Member], image_ending: str, label_field: str) -> _Sample:
    files = {member.ending: member for member in members}
    if len(files) < len(members):
        raise ValueError(f"sample {name} has two files of one ending")
    usual = (image_ending,) if image_ending else _USUAL_ENDINGS
    images = [ending for ending in files if ending in usual]
    if not images and not image_ending:
        decoded = [ending for ending in files if f".{ending}".endswith(image_suffixes())]
        images = [ending for ending in decoded if "." not in ending] or decoded
    if not images:
        wanted = ", ".join(f".{ending}" for ending in usual) + ("" if image_ending else " or other that Pillow decodes")
        only = ", .".join(files)
        raise _NoImageError(f"sample {name} has no image {wanted}, only .{only}; data.skip_corrupt=true leaves it out")
    if len(images) > 1:
        dotted = "its name ends at the first dot; " if any("." in ending for ending in images) else ""
        raise ValueError(
            f"sample {name} has several images, .{', .'.join(images)}; {dotted}name one by data.image_column"
        )
    image = files[images[0]]
    return _Sample(name, image.offset, image.size, _label(name, files, images[0], label_field))


def _label(name: str, files: dict[str, _Member], image: str, label_field: str) -> int | str:
    """Return the number or word in .cls, else in a field of .json, else -1; beside x.jpg also in x.cls and x.json."""
    beside = image[: image.rfind(".") + 1]
    cls, fields = (files.get(ending) or files.get(f"{beside}{ending}") for ending in ("cls", "json"))
    if cls:
        try:
            return label_of(cls.content.decode().strip(), f"sample {name}")
        except UnicodeDecodeError:
            raise ValueError(
                f"sample {name} needs a number or a word in its .cls, got bytes that are no text"
            ) from None
    value = foreign_json_value(fields.content) if fields else None
    return label_of(value.get(label_field) if isinstance(value, dict) else None, f"sample {name}")


def shards_at(path: str) -> tuple[Location, dict[str, int]]:
    """Return the folder of a WebDataset, and the sizes in bytes of its tars by path below it.

    In a pattern, * and ? stand for any text and any character, {a,b} for either, {00..99} for all numbers with that
    many digits. Everything that braces name must exist.
    """
    address, mark, options = path.partition("?") if is_address(path) else (path, "", "")
    parts = address.split("/")
    depth = next((number for number, part in enumerate(parts) if re.search(r"[*?{]", part)), len(parts))
    place = Location("/".join(parts[:depth]) + mark + options)
    if depth == len(parts):
        return place, files_ending(place, _TAR, f"webdataset:{path}")
    tars = place.sizes((_TAR,))
    patterns = _without_braces("/".join(parts[depth:]))
    if absent := [each for each in patterns if not re.search(r"[*?]", each) and each not in tars]:
        raise DataError(
            f"data.name: {place.path} lacks {len(absent):,} tars of {path:.{_SHOWN}}, got no {absent[0]:.{_SHOWN}}; "
            "fetch them again"
        )
    wild = [each for each in patterns if each not in tars]
    if len(wild) > _MOST_WILD or len(wild) * len(tars) > _MOST_MATCHES:
        raise DataError(
            f"data.name: braces may mean {_MOST_WILD:,} names with * or ?, compared {_MOST_MATCHES:,} times, got "
            f"{len(wild):,} from {path:.{_SHOWN}} for {len(tars):,} files; write * in place of braces"
        )
    named = set(patterns)
    chosen = {file: size for file, size in tars.items() if file in named or any(fnmatchcase(file, w) for w in wild)}
    if not chosen:
        raise DataError(
            f"data.name: no tar is named like {path:.{_SHOWN}}, "
            f"got {', '.join(list(tars)[:3]) or 'none'} in {place.path}"
        )
    return place, chosen


def _without_braces(pattern: str) -> list[str]:
    """Return the patterns that one with braces stands for, none of which is longer than it."""
    most = min(_MOST_NAMES, _MOST_CHARACTERS // len(pattern))
    done, open_ones = [], [pattern]
    while open_ones:
        each = open_ones.pop()
        match = _BRACES.search(each)
        if match is None:
            done.append(each)
        else:
            room = most - len(done) - len(open_ones)
            words = list(islice(_words(match[1]), room + 1))
            if len(words) > room:
                raise DataError(
                    f"data.name: a pattern of {len(pattern):,} characters may name {most:,} tars, "
                    f"got {pattern:.{_SHOWN}}; name their folder"
                )
            open_ones += [each[: match.start()] + word + each[match.end() :] for word in words]
    return sorted(done)


def _words(braces: str) -> map[str] | list[str]:
    """Return what the text between braces stands for: numbers of a range, or words between commas."""
    if ends := _RANGE.fullmatch(braces):
        first, last = ends.groups()
        return map(f"{{:0{len(first)}d}}".format, range(int(first), int(last) + 1))
    return braces.split(",")
