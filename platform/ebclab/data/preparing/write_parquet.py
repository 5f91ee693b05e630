"""A preparation in progress: a hidden folder beside the target, from which a killed preparation continues.

.<name>.unfinished/
  plan.json     everything that the content of the shards depends on
  records/      one for each finished shard, written after it
  written/      files in progress
  set/          finished shards; becomes the target
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from ebclab.data.sources.decode import LeftOut
from ebclab.errors import DataError
from ebclab.storage import atomic
from ebclab.storage.lock import locked
from ebclab.storage.reading import read_json
from ebclab.storage.typed_json import read_typed

T = TypeVar("T")


@dataclass(frozen=True)
class ShardRecord:
    """Record of a finished shard."""

    bytes: int  # size of its file
    sha256: str  # of its file
    images: int
    left_out: tuple[LeftOut, ...]  # images that could not be read


class UnfinishedSet:
    """The hidden folder in which the dataset at ``target`` is prepared."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.folder = target.with_name(f".{target.name}.unfinished")
        self.set = self.folder / "set"
        self._records = self.folder / "records"
        self._written = self.folder / "written"
        self._remedy = f"delete {self.folder} and begin again"

    @contextmanager
    def claimed(self, plan: dict[str, object], splits: Iterable[str]) -> Iterator[None]:
        """Claim the folder for this process and a plan of splits; if no shard was finished, remove it at the end."""
        self._require_free_target()
        with locked(self.folder, busy="prepares this set", option="--to"):
            try:
                self._require_free_target()
                self._adopt(plan, splits)
                yield
            finally:
                if not self.set.exists() or not self.num_finished:
                    shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def num_finished(self) -> int:
        return sum(1 for _ in self._records.glob("*.json"))

    def kept(self, name: str, make: Callable[[], T], kind: type[T]) -> T:
        """Return the result of ``make``, computed once under ``name`` and kept for later processes."""
        path = self.folder / f"{name}.json"
        if not path.exists():
            atomic.write_json(path, asdict(make()))  # type: ignore[call-overload]
        return read_typed(path, kind, remedy=self._remedy)

    def record(self, shard: str) -> ShardRecord | None:
        """Return the record of a shard, named by its path within the dataset, or None if it is not finished."""
        path = self._record_of(shard)
        if not path.exists():
            return None
        record = read_typed(path, ShardRecord, remedy=self._remedy)
        file = self.set / shard
        if not file.is_file() or file.stat().st_size != record.bytes:
            raise DataError(f"{file}: not as it was finished; {self._remedy}")
        return record

    def finish(self, shard: str, write: Callable[[Path], tuple[int, list[LeftOut]]]) -> ShardRecord:
        """Write a shard in ``written/``, move it to its place and record it; return the record."""
        aside = self._written / shard.replace("/", "-")
        images, left_out = write(aside)
        with aside.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        record = ShardRecord(aside.stat().st_size, digest, images, tuple(left_out))
        place = self.set / shard
        aside.rename(place)
        atomic.sync_path(place.parent)
        atomic.write_json(self._record_of(shard), asdict(record))
        return record

    def add(self, name: str, text: str) -> None:
        """Write a text file beside the shards."""
        aside = self._written / name
        atomic.write_text(aside, text)
        aside.replace(self.set / name)

    def publish(self) -> None:
        """Move the dataset to the target, and remove the files that were only needed to continue."""
        for path in (*self.set.iterdir(), self.set):
            atomic.sync_path(path)
        self.set.rename(self.target)
        atomic.sync_path(self.target.parent)

    def _adopt(self, plan: dict[str, object], splits: Iterable[str]) -> None:
        """Start, or continue with finished shards of the same plan."""
        path = self.folder / "plan.json"
        if path.exists():
            before = read_json(path, remedy=self._remedy, error=DataError)
            if before != plan:
                raise DataError(
                    f"--to: {self.folder} holds a part of another set, got {_difference(before, plan)}; repeat "
                    "with what it began with, or delete it"
                )
        else:
            atomic.write_json(path, plan)
        for split in splits:
            atomic.make_folder(self.set / split)
        atomic.make_folder(self._records)
        atomic.make_folder(self._written)

    def _require_free_target(self) -> None:
        if self.target.exists() and (not self.target.is_dir() or any(self.target.iterdir())):
            if not self.set.exists():  # killed after the move: the target is this dataset
                shutil.rmtree(self.folder, ignore_errors=True)
            raise DataError(f"--to: there is something already, got {self.target}; give a folder that is new or empty")

    def _record_of(self, shard: str) -> Path:
        return self._records / f"{shard.replace('/', '-')}.json"


def _difference(before: object, now: dict[str, object]) -> str:
    """Return the first setting in which two plans differ, in words."""
    if not isinstance(before, dict):
        return "no plan"
    for key, value in now.items():
        old = before.get(key)
        if old != value:
            if isinstance(old, dict) and isinstance(value, dict):
                return f"{key}: {_difference(old, value)}"
            if key in ("files", "index"):
                return f"other {key} now: files were added, replaced or removed"
            return f"{key} {old} before and {value} now"
    return "more settings before"
