"""Lists runs and sweeps, on a disk or in an object store, by as few of their files as possible; chooses some.

Settings are read fast from text in the form that ``to_yaml`` writes: one block per section, one line per key, each
value on the line of its key, which alone is parsed as YAML. Any other text is parsed as a whole. Both give the same
values. What was read of a section or a value is kept, since most sections of most runs are equal, and most values of
the others.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from ebclab.config.addresses import is_address
from ebclab.config.names import did_you_mean, is_folder_name
from ebclab.config.yaml_text import LARGEST_YAML, JsonObject, Plain, from_yaml, load_yaml_file
from ebclab.errors import ConfigError, RunError, UserError
from ebclab.evaluation.objectives import format_of
from ebclab.formatting import age, count, size
from ebclab.regular_file import read_regular
from ebclab.runs.summary import RunSummary
from ebclab.storage.kinds import COMPARISON, KINDS, RUN, SWEEP
from ebclab.storage.lease import NAME as LEASE
from ebclab.storage.lease import held_by
from ebclab.storage.lock import LOCK, is_running
from ebclab.storage.mirror import CHECKPOINTS, MANIFEST, at_once, bring, whole_checkpoints
from ebclab.storage.object_store import RemoteFolder, Store, Stored, holds, remote_at, remote_in
from ebclab.storage.reading import json_value, read_typed, typed

T = TypeVar("T")
R = TypeVar("R")
_LISTED = {RUN.settings, RUN.result, *SWEEP.files, COMPARISON.settings}
"""Files of runs, sweeps and comparisons that listing reads."""


class Files(NamedTuple):
    """The files of a run or a sweep."""

    num_bytes: int  # total size in bytes; hard links to the same file count once
    changed: Mapping[str, float]  # modification time of each file, in seconds since 1970, by path within the folder


@dataclass(frozen=True)
class RunProgress:
    """How far a run came, by the facts in the manifest of a checkpoint."""

    epochs_done: int  # epochs done
    scores: dict[str, float]  # held-out scores by name


@dataclass(frozen=True)
class _Manifested:
    """What a list reads of a manifest."""

    facts: RunProgress


def files_in(folder: Path | str) -> Files:
    """Return the files of a folder on a disk; symbolic links are not followed."""
    num_bytes, linked, changed = 0, dict[tuple[int, int], int](), dict[str, float]()
    start = len(os.fspath(folder)) + 1
    for path, stat in _files([folder]):
        if stat.st_nlink == 1:
            num_bytes += stat.st_size
        else:
            linked[stat.st_dev, stat.st_ino] = stat.st_size
        changed[path[start:]] = stat.st_mtime
    return Files(num_bytes + sum(linked.values()), changed)


def room(paths: Iterable[Path]) -> int:
    """Return the total size of all files in ``paths`` in bytes; hard links to the same file count once."""
    sizes = {(stat.st_dev, stat.st_ino): stat.st_size for _, stat in _files(paths)}
    return sum(sizes.values())


def room_freed(paths: Iterable[Path]) -> int:
    """Return the bytes that deleting ``paths`` frees; a file with a hard link elsewhere does not count."""
    stats = [stat for _, stat in _files(paths)]
    names = Counter((stat.st_dev, stat.st_ino) for stat in stats)
    sizes = {(s.st_dev, s.st_ino): s.st_size for s in stats if names[s.st_dev, s.st_ino] >= s.st_nlink}
    return sum(sizes.values())


def folders_with(folder: Path, file: str) -> list[Path]:
    """Return the folders in ``folder`` that contain ``file``; hidden ones, which are being deleted, are skipped."""
    try:
        names = [name for name in os.listdir(folder) if not name.startswith(".")]
    except OSError:
        return []
    return [folder / name for name in sorted(names) if os.path.lexists(os.path.join(folder, name, file))]


def _files(paths: Iterable[Path | str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield path and stat result of every file and link in ``paths``; files deleted meanwhile are skipped."""
    folders = [os.fspath(path) for path in paths]
    while folders:
        try:  # not suppress: it takes as long as all the rest
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                        elif entry.is_file() or entry.is_symlink():
                            yield entry.path, entry.stat(follow_symlinks=False)
                    except OSError:
                        pass
        except OSError:
            pass


@dataclass(frozen=True)
class RunCollection:
    """A folder of runs or of sweeps."""

    path: Path  # the folder, or its local copy
    remote: RemoteFolder | None = None  # the folder in the store; None on a disk
    there: Mapping[str, Files] | None = None  # files in the store, by name of the run or sweep; None on a disk

    @property
    def address(self) -> str:
        return self.remote.address if self.remote else str(self.path)

    def address_of(self, name: str) -> str:
        """Return path or address of a run or sweep."""
        return (self.remote / name).address if self.remote else os.path.join(self.path, name)

    def files(self, name: str) -> Files:
        """Return the files of a run or sweep."""
        return files_in(os.path.join(self.path, name)) if self.there is None else self.there.get(name, Files(0, {}))

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return what ``work`` returns for each item; in a store, in parallel threads."""
        return [work(item) for item in items] if self.remote is None else at_once(work, items)

    def progress(self, path: Path, files: Files) -> RunProgress | None:
        """Return how far a run with these files came, by its newest complete ``last`` checkpoint; None if none."""
        for folder in whole_checkpoints(files.changed, "last"):
            if self.remote is None:
                return read_typed(path / CHECKPOINTS / folder / MANIFEST, _Manifested).facts
            try:
                manifest = Store(self.remote / path.name / CHECKPOINTS / folder).read(MANIFEST)
                return typed(json_value(manifest), _Manifested).facts
            except FileNotFoundError:
                continue  # replaced since listing
            except ValueError as error:
                raise RunError(f"{self.address}/{path.name}: {folder} is damaged, got {error}") from error
        return None

    def is_running(self, path: Path, files: Files) -> bool:
        """Return whether a process uses a run or sweep that has these files."""
        if self.remote is not None:
            return LEASE in files.changed and bool(held_by(self.remote / path.name, files.changed[LEASE]))
        return LOCK in files.changed and is_running(path)


def _by_folder(there: Mapping[str, Stored]) -> dict[str, Files]:
    """Return the files of each direct subfolder of a folder in a store, by name of the subfolder."""
    sizes, changed = Counter[str](), dict[str, dict[str, float]]()
    for file, info in there.items():
        folder, _, name = file.partition("/")
        sizes[folder] += info.num_bytes
        changed.setdefault(folder, {})[name] = info.changed.timestamp() if info.changed else 0.0
    return {folder: Files(sizes[folder], times) for folder, times in changed.items()}


def collection_at(place: str | None, usual: str) -> RunCollection:
    """Return the collection at the user's place, or the usual one; what listing reads is copied from a store."""
    remote = remote_at(place) if place else None
    if remote is None:
        return RunCollection(collection_given(place, usual))
    remote = remote.of("reader")
    store = Store(remote)
    there = store.names()
    wanted = [name for name in there if name.count("/") == 1 and name.endswith(tuple(f"/{file}" for file in _LISTED))]
    for path in (path for file in _LISTED for path in remote.cache.glob(f"*/{file}")):  # of an earlier listing
        path.unlink()
    at_once(lambda name: bring(store, name, remote.cache / name), wanted)
    return RunCollection(remote.cache, remote, _by_folder(there))


def collection_given(place: str | None, usual: str) -> Path:
    """Return the folder on a disk that the user gave by the option ``--usual``, or the usual one, such as runs."""
    if place is None:
        return Path(usual)
    if remote_at(place) is not None:
        raise UserError(
            f"--{usual}: only folders on a disk can be cleaned, got {place}; "
            "delete in a store with its own tool, such as `aws s3 rm --recursive`"
        )
    if not Path(place).is_dir():
        raise RunError(f"--{usual}: there is no such folder, got {place}")
    return Path(place)


_MOST_LINES = 1000  # of a file that is read so
_LONGEST_PART = 10_000  # characters between two empty lines
_LINE = re.compile("((?:  )?[a-z_][a-z_0-9]{0,99}):(?: ([^ |>].*))?")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(\.[0-9]{1,20})?")


def settings_at(path: str | Path, keys: tuple[str, ...]) -> list[Any]:
    """Return the values of settings, named section.key, in the file of a run, without validation; not to be changed."""
    try:
        values = _settings_in(read_regular(path, LARGEST_YAML).decode("utf-8"))
        if values is not None and all(key in values for key in keys):
            return [values[key] for key in keys]
    except (OSError, UnicodeDecodeError):
        pass
    content = load_yaml_file(Path(path))
    return [content[section][name] for section, _, name in (key.partition(".") for key in keys)]


def _settings_in(text: str) -> Plain | None:
    """Return the values of settings, named section.key, and every section's name without a value.

    None if a line has not the form of ``to_yaml``, or a key appears twice.
    """
    values: Plain = {}
    num_lines = 0
    for part in text.split("\n\n"):
        lines = _lines_of_part(part) if len(part) <= _LONGEST_PART else None
        if lines is None:
            return None
        values |= lines
        num_lines += len(lines)
    return values if len(values) == num_lines <= _MOST_LINES else None


@lru_cache(maxsize=10_000)
def _lines_of_part(text: str) -> Plain | None:
    """Return what ``_settings_in`` does, of what stands between two empty lines: usually a section."""
    values: Plain = {}
    section, num_lines = "", 0
    for line in filter(None, text.split("\n")):
        found = _LINE.fullmatch(line) if line.isprintable() else None
        if found is None:
            return None
        key, written = found.groups()
        if not key.startswith("  "):
            section = "" if written else key
        elif section and written:
            key = f"{section}.{key[2:]}"
        else:
            return None
        try:
            values[key] = _value(written) if written else None
        except ConfigError:
            return None
        num_lines += 1
    return values if len(values) == num_lines else None


@lru_cache(maxsize=10_000)
def _value(written: str) -> Any:
    """Return what YAML reads after a key, on the line of the key."""
    if number := _NUMBER.fullmatch(written):
        return float(written) if number[1] else int(written)
    return from_yaml(f"key: {written}", "a setting")["key"]


_SETTINGS = ("method.name", "data.name", "training.epochs", "evaluation.objective")
_JOINED = ", "  # between the methods, and the datasets, of a comparison


class Content(NamedTuple):
    """Settings, progress and scores of a run or sweep."""

    method: str  # name of the method; of a comparison the names of all
    data: str  # name of the dataset; of a comparison the names of all
    done: int  # number of completed epochs of a run, or of ended search trials of a sweep
    of: int  # planned number of epochs or search trials
    objective: str  # name of the score used as objective
    # held-out scores by name: the newest of a run; the winner's mean of a sweep, or the best trial's value if there is
    # no winner yet. Empty if nothing was measured
    scores: Mapping[str, float]
    is_finished: bool  # whether it has a result
    note: str = ""  # additional remark on the progress


def _content_of_run(path: Path, files: Files, collection: RunCollection) -> Content:
    """Return settings, progress and scores of a run, read from its folder or its local copy."""
    is_finished, settings = RUN.result in files.changed, os.path.join(path, RUN.settings)  # joins of Path take longer
    method, data, epochs, objective, *ends = _settings(settings, with_extensions=not is_finished)
    if is_finished:
        file = os.path.join(path, RUN.result)
        summary = RunSummary.read(file, file)
        reached = RunProgress(summary.epochs, summary.scores)
        ends = [extension.before for extension in summary.extensions]
    else:
        reached = collection.progress(path, files) or RunProgress(0, {})
    note = f"(extended from {', '.join(map(str, ends))})" if ends else ""
    done, scores = reached.epochs_done, reached.scores
    return Content(str(method), str(data), done, int(epochs), objective, scores, is_finished, note)


def _content_of_sweep(path: Path, files: Files, collection: RunCollection) -> Content:
    """Return settings, progress and score of a sweep, read from its folder or its local copy."""
    from ebclab.sweeps.folder import SweepFolder  # imported here: takes seconds
    from ebclab.sweeps.results import SweepResult, ranked

    folder = SweepFolder(path)
    plan = load_yaml_file(folder.plan)
    config, trials = plan["config"], folder.read_log().of_kind("search")
    done, objective = sum(trial.is_over for trial in trials), config["evaluation"]["objective"]
    value: float | None = None
    is_finished = folder.result.is_file()
    if is_finished:
        value = SweepResult.read(folder.result).winner.mean
    elif best_first := ranked(trials):
        value = best_first[0].objectives[best_first[0].epochs_done]
    scores = {} if value is None else {objective: value}
    method, data = str(config["method"]["name"]), str(config["data"]["name"])
    return Content(method, data, done, int(plan["trials"]), objective, scores, is_finished)


def _settings(path: str, with_extensions: bool) -> list[Any]:
    """Return the settings of a run, not validated, and the planned epochs before each extension, if there are any."""
    if with_extensions:
        with suppress(KeyError):  # a run of an older version has no such setting
            *values, ends = settings_at(path, (*_SETTINGS, "training.extended"))
            return [*values, *ends]
    return settings_at(path, _SETTINGS)


KindName = Literal["run", "sweep", "comparison"]
State = Literal["running", "finished", "unfinished", "unreadable"]
_DAMAGE = (UserError, OSError, ValueError, KeyError, TypeError, AttributeError)
_DATED = RUN.files | SWEEP.files | COMPARISON.files
"""Files whose newest modification time is that of the folder."""
_AT_ONCE = 500  # folders whose files are known at once
_Read = Callable[[Path, Files, RunCollection], Content]


@dataclass(frozen=True)
class Entry:
    """A run, a sweep or a comparison."""

    name: str  # name of its folder
    kind: KindName  # what it is
    address: str  # path or address of its folder
    state: State  # running, finished, unfinished or unreadable
    content: Content | None  # content of its files; None if they cannot be read
    num_bytes: int  # total size of its files in bytes
    changed: float  # time of the last change, in seconds since 1970

    @property
    def value(self) -> float | None:
        """Held-out objective; None if it was not measured or is not finite."""
        return None if self.content is None else self.score(self.content.objective)

    @property
    def methods(self) -> list[str]:
        """Names of its methods, of a comparison all; none if it cannot be read."""
        return self._names(self.content.method) if self.content else []

    @property
    def datasets(self) -> list[str]:
        """Names of its datasets, of a comparison all; none if it cannot be read."""
        return self._names(self.content.data) if self.content else []

    def _names(self, text: str) -> list[str]:
        return text.split(_JOINED) if self.kind == "comparison" else [text]

    def score(self, name: str) -> float | None:
        """Return a held-out score; None if it was not measured or is not finite."""
        value = None if self.content is None else self.content.scores.get(name)
        return value if value is not None and math.isfinite(value) else None

    def in_words(self, now: float) -> dict[str, str]:
        """Return the cells of a table row by column, with the age at time ``now`` in seconds since 1970."""
        content, value = self.content, self.value
        row = {"name": self.name, "method": "", "data": "", "done": "", "score": "", "state": self.state}
        if content is not None:
            unit = {"run": "epoch", "sweep": "trial", "comparison": "sweep"}[self.kind]
            done = f"{content.done}/{count(content.of, unit)} {content.note}".strip()
            score = "" if value is None else format_of(content.objective).number(value)
            row |= {"method": content.method, "data": content.data, "done": done, "score": score}
        return row | {"size": size(self.num_bytes), "age": age(now - self.changed)}

    def to_mapping(self) -> JsonObject:
        """Return the entry as plain values; the content is omitted if it cannot be read, unknown scores are None."""
        facts: JsonObject = {
            "name": self.name,
            "kind": self.kind,
            "address": self.address,
            "state": self.state,
            "bytes": self.num_bytes,
            "changed": datetime.fromtimestamp(self.changed, UTC).isoformat(timespec="seconds"),
        }
        content = self.content
        if content is None:
            return facts
        told: JsonObject = {"method": content.method, "data": content.data, "done": content.done, "of": content.of}
        scores = {name: self.score(name) for name in content.scores}
        return {**facts, **told, "objective": content.objective, "value": self.value, "scores": scores}


def inventory(runs: RunCollection, sweeps: RunCollection, comparisons: RunCollection | None = None) -> list[Entry]:
    """Return the runs, sweeps and comparisons in these folders, newest first; corrupt ones are listed as unreadable."""
    entries = [*_entries(runs, "run", _content_of_run), *_entries(sweeps, "sweep", _content_of_sweep)]
    if comparisons is not None:
        entries += _entries(comparisons, "comparison", _content_of_comparison)
    return sorted(entries, key=lambda entry: -entry.changed)


def _entries(collection: RunCollection, kind: KindName, read: _Read) -> list[Entry]:
    """Return what is in a collection; many runs on a disk are read by a process for each core."""
    paths = folders_with(collection.path, KINDS[kind].settings)
    parts = [paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE)]
    entries_of = partial(_some_entries, collection, kind, read)
    cores = min(len(os.sched_getaffinity(0)), len(parts)) if sys.platform == "linux" else 1
    # may be forked: a broken pool ends its processes by SIGTERM, which a handler would take for its own in a new one
    may_fork = threading.active_count() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if cores > 1 and kind == "run" and not collection.remote and may_fork:
        fork = multiprocessing.get_context("fork")
        with (
            suppress(BrokenProcessPool),  # a process was killed: all are read here
            ProcessPoolExecutor(cores, fork, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool,
        ):
            return list(chain.from_iterable(pool.map(entries_of, parts)))
    return list(chain.from_iterable(map(entries_of, parts)))


def _some_entries(collection: RunCollection, kind: KindName, read: _Read, paths: list[Path]) -> list[Entry]:
    """Return the entries of some folders: to list all, then look whether each is used, then read all is faster."""
    files = [collection.files(path.name) for path in paths]
    used = collection.each(lambda each: collection.is_running(*each), [*zip(paths, files, strict=True)])
    there = [*zip(paths, files, used, strict=True)]
    return collection.each(lambda each: _entry(collection, kind, read, *each), there)


def _content_of_comparison(path: Path, files: Files, collection: RunCollection) -> Content:
    plan = load_yaml_file(path / COMPARISON.settings)
    searches = plan["sweeps"]
    done = sum(f"{COMPARISON.inside}/{name}/{SWEEP.result}" in files.changed for name in searches)
    method, data = (
        _JOINED.join(dict.fromkeys(str(value) for value in values))
        for values in (plan["asked"]["methods"], [each["task"]["dataset"] for each in searches.values()])
    )
    return Content(method, data, done, len(searches), "", {}, done == len(searches))


def _entry(collection: RunCollection, kind: KindName, read: _Read, path: Path, files: Files, is_running: bool) -> Entry:
    changed = max((files.changed[name] for name in _DATED if name in files.changed), default=time.time())
    state: State = "running" if is_running else "unfinished"
    content: Content | None = None
    try:
        content = read(path, files, collection)
        if state != "running" and content.is_finished:
            state = "finished"
    except _DAMAGE:
        state = "unreadable"
    return Entry(path.name, kind, collection.address_of(path.name), state, content, files.num_bytes, changed)


ORDERS: dict[str, Callable[[Entry], Any]] = {
    "date": lambda entry: -entry.changed,
    "name": lambda entry: entry.name,
    "method": lambda entry: entry.content and entry.content.method,
    "dataset": lambda entry: entry.content and entry.content.data,
    "state": lambda entry: get_args(State).index(entry.state),
    "done": lambda entry: entry.content and -entry.content.done,
    "score": lambda entry: _negated(entry.value),
    "knn": lambda entry: _negated(entry.score("holdout_knn")),
    "size": lambda entry: -entry.num_bytes,
}
"""Sort keys of lists by name, in ascending order: newest, best and largest come first."""


def chosen(
    entries: Sequence[Entry], *, method: str | None, dataset: str | None, state: str | None, sort: str
) -> list[Entry]:
    """Return the entries of a method, dataset and state, sorted; those with an unknown sort value come last."""
    problems = []
    if sort not in ORDERS:
        problems.append(f"--sort: no such order, got {sort}; {did_you_mean(sort, ORDERS)}")
    if state is not None and state not in get_args(State):
        problems.append(f"--state: no such state, got {state}; {did_you_mean(state, get_args(State))}")
    for option, given, names in (
        ("--method", method, {name for entry in entries for name in entry.methods}),
        ("--dataset", dataset, {name for entry in entries for name in entry.datasets}),
    ):
        if given is not None and given not in names:
            problems.append(f"{option}: nothing here has it, got {given}; {did_you_mean(given, sorted(names))}")
    if problems:
        raise UserError("\n".join(problems))
    kept = [
        entry
        for entry in entries
        if (method is None or method in entry.methods)
        and (dataset is None or dataset in entry.datasets)
        and state in (None, entry.state)
    ]
    order = ORDERS[sort]
    known = [entry for entry in kept if order(entry) is not None]
    return sorted(known, key=order) + [entry for entry in kept if order(entry) is None]


def _negated(value: float | None) -> float | None:
    return None if value is None else -value


def places_of(names: list[str], runs: str) -> list[str | Path]:
    """Return paths or addresses of runs, which are named by names in the folder ``runs``, folders or addresses.

    A name in ``runs`` takes precedence over a folder of the same name. Addresses are returned unchecked.
    """
    found = {name: _place(name, runs) for name in names}
    known = [] if remote_at(runs) else [path.name for path in folders_with(Path(runs), RUN.settings)]
    problems = [
        f"{name}: no run of this name in {runs}, and no run there; {_other_kind(name) or did_you_mean(name, known)}"
        for name, place in found.items()
        if place is None
    ]
    if problems:
        raise RunError("\n".join(problems))
    return list(dict.fromkeys(place for place in found.values() if place is not None))


def _other_kind(name: str) -> str:
    """Return how a sweep or comparison of this name is shown; empty if there is none."""
    place = place_named(name)
    kind = next((kind.name for kind in (SWEEP, COMPARISON) if holds(place, kind.settings)), "")
    return kind and f"it is a {kind}, of which `ebclab report {place}` writes a page"


def _place(name: str, runs: str) -> str | Path | None:
    if is_address(name):
        return name
    if is_folder_name(name):
        if (remote := remote_in(runs, name)) is not None:
            return remote.address if holds(remote.address, RUN.settings) else None
        if holds(Path(runs) / name, RUN.settings):
            return Path(runs) / name
    return Path(name) if holds(name, RUN.settings) else None


def place_named(name: str) -> str:
    """Return where a run, sweep or comparison of this name is in ./runs, ./sweeps or ./comparisons, or else the name.

    A file of this name, or a folder that holds such things or an exported encoder, takes precedence.
    """
    if is_folder_name(name) and not _is_taken(Path(name)):
        for kind in (RUN, SWEEP, COMPARISON):
            if holds(place := f"{kind.name}s/{name}", kind.settings):
                return place
    return name


def _is_taken(path: Path) -> bool:
    """Return whether there is a file at ``path``, or a folder that is more than one of images, say."""
    if not path.is_dir():
        return path.exists()
    from ebclab.encoders.build import DESCRIPTION  # imports torch

    return any((path / file).is_file() for file in (*(kind.settings for kind in KINDS.values()), DESCRIPTION))
