"""Puts exports in place: a folder on a disk is replaced atomically, and only if it is an earlier export."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ebclab.encoders.build import DESCRIPTION, ENERGIES, HEADS, WEIGHTS
from ebclab.errors import UserError
from ebclab.export.formats import MODEL_FILES, TIMM_CONFIG
from ebclab.regular_file import read_regular
from ebclab.storage.atomic import new_folder, remove_folder, rename
from ebclab.storage.object_store import Store, cache_folder, remote_at
from ebclab.storage.reading import LARGEST, json_value

CARD = "README.md"
LEADERBOARD = ("leaderboard.json", "leaderboard.csv")
_OF_ENCODER = {WEIGHTS, DESCRIPTION, CARD, TIMM_CONFIG, ENERGIES, HEADS, *MODEL_FILES.values()}


def refuse_occupied(target: Path, overwrite: bool, *, of_sweep: bool = False) -> None:
    """Refuse a folder with anything but an earlier export of the same kind; with ``overwrite`` false, that as well.

    An interrupted replacement of the folder is undone or completed first.
    """
    try:
        _put_back(target)
    except OSError as error:
        raise UserError(f"{target}: cannot be used, got {error.strerror or error}; choose another folder") from error
    content = {name: set[str]() for name in _names_in(target)}
    if of_sweep:
        content |= {name: _names_in(target / name) for name in content if (target / name).is_dir()}
    _refuse(str(target), content, lambda name: read_regular(target / name, LARGEST), overwrite, of_sweep)


@contextmanager
def landed(to: str | Path, overwrite: bool, *, of_sweep: bool = False) -> Iterator[Path]:
    """Yield a folder on this disk for the export; if ``to`` is an address, its files are uploaded there afterwards.

    In a store, descriptions are deleted first and uploaded last, so that an interrupted export is never taken for one.
    An earlier export is replaced, with ``overwrite``, by one of the same kind alone.
    """
    remote = remote_at(to)
    if remote is None:
        yield Path(to)
        return
    store = Store(remote)
    present = set(store.names())
    content: dict[str, set[str]] = {}
    for name in present:
        first, _, inner = name.partition("/")
        content.setdefault(first, set()).add(inner)
    _refuse(remote.address, content, store.read, overwrite, of_sweep)
    cache_folder().mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=cache_folder(), prefix="export-") as folder:
        made = Path(folder) / "export"
        yield made
        _replace_stored(store, present, made)


def _replace_stored(store: Store, present: set[str], made: Path) -> None:
    """Replace the files ``present``, of an earlier export, by those in the folder ``made``."""
    names = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()}
    for name in sorted((name for name in present if _describes(name)), key=_describes, reverse=True):
        store.delete(name)
    for name in sorted(names, key=lambda name: (_describes(name), name)):
        store.upload(made / name, name)
    for name in sorted(present - names):
        store.delete(name)


def _describes(name: str) -> int:
    """Return the upload priority: 0 for most files, 1 for a description, 2 for a leaderboard, which come last."""
    return 2 if name == LEADERBOARD[0] else int(name.rpartition("/")[2] == DESCRIPTION)


_Content = Mapping[str, set[str]]
"""The files and folders in a place, by name, with the names in the folders."""


def _refuse(where: str, content: _Content, read: Callable[[str], bytes], overwrite: bool, of_sweep: bool) -> None:
    """Refuse a place that has anything but an earlier export of this kind, and without ``overwrite`` that as well."""
    if not content:
        return
    if of_sweep:
        exports = {
            name
            for name, inner in content.items()
            if DESCRIPTION in inner and inner <= _OF_ENCODER and _is_description(f"{name}/{DESCRIPTION}", read)
        }
        foreign = sorted(content.keys() - set(LEADERBOARD) - exports)
        if foreign or not content.keys() >= set(LEADERBOARD):
            got = ", ".join(foreign[:3]) or f"no {LEADERBOARD[0]}"
            raise UserError(f"{where}: is not an earlier export of a sweep, got {got}; choose a new or empty folder")
    elif foreign := sorted(content.keys() - _OF_ENCODER):
        raise UserError(f"{where}: holds other files, got {', '.join(foreign[:3])}; choose a new or empty folder")
    elif not (DESCRIPTION in content and _is_description(DESCRIPTION, read)):
        raise UserError(
            f"{where}: is not an earlier export, got no {DESCRIPTION} of ebclab; choose a new or empty folder"
        )
    if not overwrite:
        what, it = ("exported encoders", "them") if of_sweep else ("an exported encoder", "it")
        raise UserError(f"{where}: already holds {what}; choose another folder, or replace {it} by --overwrite")


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder next to ``target``, which then replaces ``target``; until then ``target`` is unchanged.

    Between the two renames of the swap ``target`` does not exist. If the process is killed there, ``present_folder``
    finds the old folder, and the next export restores it. A full disk is a UserError.
    """
    try:
        try:
            with new_folder(target) as aside:
                yield aside
                if target.exists():
                    rename(target, _retired(target))
        finally:
            _put_back(target)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"{target}: cannot be written, got {reason}; choose another folder or free some space"
        ) from error


def present_folder(target: Path) -> Path:
    """Return the path of the export at ``target``: itself, or the old folder if its replacement was interrupted."""
    retired = _retired(target)
    return retired if retired.exists() and not target.exists() else target


def _put_back(target: Path) -> None:
    """Undo a swap that was interrupted before the new folder was in place; if it is, remove the old folder."""
    retired = _retired(target)
    if retired.exists() and target.exists():
        remove_folder(retired)
    elif retired.exists():
        rename(retired, target)


def _retired(target: Path) -> Path:
    whole = target.absolute()  # "." has an empty name
    return whole.parent / f".{whole.name}.replaced"


def _names_in(target: Path) -> set[str]:
    try:
        return {path.name for path in target.iterdir()} if target.exists() else set()
    except OSError as error:
        raise UserError(
            f"{target}: is not a folder that can be read, got {error.strerror or error}; choose another"
        ) from error


def _is_description(name: str, read: Callable[[str], bytes]) -> bool:
    try:
        description = json_value(read(name))
    except (OSError, ValueError):
        return False
    return isinstance(description, dict) and "format_version" in description
