"""WebDataset: tars of samples, which can be read in any order once the positions of all images are known."""

from __future__ import annotations

import logging
import re
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from itertools import chain, islice

import pyarrow as pa
import torch
from torch import Tensor

from ebclab.config.addresses import is_address
from ebclab.data.class_labels import Labels, joined, of_words
from ebclab.data.digests import digest_of_files
from ebclab.data.photograph import sizes_in_headers
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.decode import Decoded, Reading, decode_images, first_example
from ebclab.data.sources.image_source import RowIndex, Statistics
from ebclab.data.sources.location import any_word, files_of_split, hash_of_path
from ebclab.data.sources.shards.tar_samples import Sample, read_samples
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location, first_line

_TARS = (".tar",)
_COMPRESSED = (".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2")
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

_log = logging.getLogger("ebclab.data")


class WebdatasetSource:
    """One split of a WebDataset; satisfies ``ImageSource``, with one image a group.

    The key of an image is the hash of its shard's path within the split and of its name in it. Its label is the number
    or word in its .cls, else that in the field ``data.label_column`` of its .json, else -1. If samples have several
    images, ``data.image_column`` chooses one by its ending.

    Args:
        path: A tar, a folder of tars or a pattern such as /data/train-{000..099}.tar, local or in an object store.
        reading: How images are read.
    """

    statistics: Statistics | None = None

    def __init__(self, name: str, path: str, split: Split, reading: Reading) -> None:
        self.name, self.reading = name, reading
        self._place, sizes = shards_at(path)
        shards = files_of_split(list(sizes), split, name, any_word)
        self._shards = list(shards)
        self.files_digest = digest_of_files({inside: str(sizes[file]) for file, inside in shards.items()})
        with ThreadPoolExecutor(_INDEX_THREADS) as pool:
            of_shards = list(pool.map(self._read_shard, shards))
        samples = list(chain.from_iterable(of_shards))
        if not samples:
            raise DataError(f"data.name: {name} holds no samples, got {len(shards)} empty tars in {self._place.path}")
        labels = _labels([sample.label for sample in samples], self._place.path)
        self.class_names = labels.names
        counts = torch.tensor([len(each) for each in of_shards])
        self._shard_of = torch.repeat_interleave(torch.arange(len(counts)), counts)
        self._bytes_of = torch.tensor([(sample.offset, sample.size) for sample in samples])
        self._names = [sample.name for sample in samples]
        inside = list(shards.values())
        groups = torch.arange(len(samples))
        shard_of = self._shard_of.tolist()
        keys = [hash_of_path(f"{inside[shard]}/{name}") for shard, name in zip(shard_of, self._names, strict=True)]
        self.index = RowIndex(
            keys=torch.tensor(keys),
            labels=labels.numbers,
            groups=groups,
            places=torch.zeros_like(groups),
        )
        self._require_names_once()
        every = (self._content(number) for number in range(len(samples)))
        self.example = first_example(every, reading, self._place.path)

    def read(self, group: int, places: Tensor) -> Decoded:
        """Return the image of sample number ``group``, once for each of ``places``."""
        return decode_images([self._content(group)] * len(places), self.reading, self.example)

    def sizes(self, rows: Tensor) -> list[tuple[int, int]]:
        """Return width and height of the images of some rows, pixels, leaving out those with unreadable headers."""
        return sizes_in_headers(self._content(number)[1] for number in rows.tolist())

    def _content(self, number: int) -> tuple[str, bytes]:
        file = self._shards[int(self._shard_of[number])]
        offset, size = self._bytes_of[number].tolist()
        try:
            with self._place.filesystem.open_input_file(self._place.inner_path(file)) as tar:
                return f"{self._where(file)}, sample {self._names[number]}", tar.read_at(size, offset)
        except (OSError, pa.ArrowException) as error:
            raise self._place.storage_error(error, file) or _damaged(self._where(file), error) from error

    def _read_shard(self, file: str) -> list[Sample]:
        filesystem, inside = self._place.filesystem, self._place.inner_path(file)
        column = self.reading.image_column
        image_ending = "" if column == _USUAL_COLUMN else column.lower()
        can_seek = self._place.is_local
        try:
            with (
                filesystem.open_input_file(inside)
                if can_seek
                else filesystem.open_input_stream(inside, compression=None, buffer_size=_SEQUENTIAL_BYTES)
            ) as opened:
                samples, left_out = read_samples(opened, image_ending, self.reading.label_column, can_seek=can_seek)
        except (OSError, pa.ArrowException, ValueError) as error:
            raise self._place.storage_error(error, file) or _damaged(self._where(file), error) from error
        if left_out:
            shown = ", ".join(left_out[:_NAMES_SHOWN]) + (", ..." if len(left_out) > _NAMES_SHOWN else "")
            _log.warning(
                "%s: %d members are no files of samples and were left out: %s", self._where(file), len(left_out), shown
            )
        return samples

    def _require_names_once(self) -> None:
        """Refuse a sample whose files are not consecutive: it would be two images with one key."""
        unique, times = torch.unique(self.index.keys, return_counts=True)
        if len(unique) == len(self.index):
            return
        number = int((self.index.keys == unique[times.argmax()]).nonzero()[0])
        where = self._where(self._shards[int(self._shard_of[number])])
        raise DataError(f"{where}: the files of a sample must follow each other, got {self._names[number]} twice")

    def _where(self, file: str) -> str:
        return f"{self._place.path}/{file}" if file else self._place.path


def shards_at(path: str) -> tuple[Location, dict[str, int]]:
    """Return the folder of a WebDataset, and the sizes in bytes of its tars by path below it.

    Args:
        path: A tar, a folder, or a pattern: * and ? stand for any text and any character, {a,b} for either, {00..99}
            for all numbers with that many digits. Everything that braces name must exist.
    """
    address, mark, options = path.partition("?") if is_address(path) else (path, "", "")
    parts = address.split("/")
    depth = next((number for number, part in enumerate(parts) if re.search(r"[*?{]", part)), len(parts))
    place = Location("/".join(parts[:depth]) + mark + options)
    found = place.sizes(_TARS)
    if depth == len(parts):
        if not found:
            packed = place.files(_COMPRESSED)
            got = f"{packed[0]}; decompress it, images are read from any place of a tar" if packed else "none"
            raise DataError(f"data.name: tars are needed in {place.path}, got {got}")
        return place, found
    patterns = _without_braces("/".join(parts[depth:]))
    if absent := [each for each in patterns if not re.search(r"[*?]", each) and each not in found]:
        raise DataError(
            f"data.name: {place.path} lacks {len(absent):,} tars of {path:.{_SHOWN}}, got no {absent[0]:.{_SHOWN}}; "
            "fetch them again"
        )
    wild = [each for each in patterns if each not in found]
    if len(wild) > _MOST_WILD or len(wild) * len(found) > _MOST_MATCHES:
        raise DataError(
            f"data.name: braces may stand for {_MOST_WILD:,} names with * or ?, compared {_MOST_MATCHES:,} times, got "
            f"{len(wild):,} from {path:.{_SHOWN}} for {len(found):,} files; write * in place of braces"
        )
    named = set(patterns)
    chosen = {file: size for file, size in found.items() if file in named or any(fnmatchcase(file, w) for w in wild)}
    if not chosen:
        raise DataError(
            f"data.name: no tar is named like {path:.{_SHOWN}}, "
            f"got {', '.join(list(found)[:3]) or 'none'} in {place.path}"
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


def _labels(given: list[int | str], where: str) -> Labels:
    """Return labels that are all numbers or all words; -1 is unknown in both."""
    numbers = Labels(torch.tensor([-1 if isinstance(each, str) else each for each in given]))
    words = of_words(each if isinstance(each, str) else "" for each in given)
    if not words.names:
        return numbers
    joined([numbers, words], where)  # refuses a mixture
    return words


def _damaged(where: str, error: Exception) -> DataError:
    return DataError(f"{where}: not a readable WebDataset, got {first_line(error)}; replace it with a good copy")
