"""Puts exports in place: a folder on a disk is replaced atomically, and only if it is an earlier export."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ebclab.encoders.weights import DESCRIPTION, ENERGIES, HEADS, WEIGHTS
from ebclab.errors import UserError
from ebclab.export.formats import MODEL_FILES
from ebclab.export.timm_config import TIMM_CONFIG
from ebclab.regular_file import read_regular
from ebclab.storage.atomic import new_folder, remove_folder, rename
from ebclab.storage.object_store import Store
from ebclab.storage.reading import LARGEST, json_value
from ebclab.storage.remote import cache_folder, remote_at

CARD = "README.md"
LEADERBOARD = ("leaderboard.json", "leaderboard.csv")
_OF_ENCODER = {WEIGHTS, DESCRIPTION, CARD, TIMM_CONFIG, ENERGIES, HEADS, *MODEL_FILES.values()}


def refuse_occupied(target: Path, overwrite: bool) -> None:
    """Refuse a folder with anything but an earlier export of one encoder; with ``overwrite`` false, that as well.

    An interrupted replacement of the folder is undone or completed first.
    """
    _put_back(target)
    present = _names_in(target)
    _refuse_encoder(str(target), present, _describes_encoder(target / DESCRIPTION), overwrite)


def refuse_occupied_by_others(target: Path, overwrite: bool) -> None:
    """Refuse a folder with anything but an earlier export of a sweep; with ``overwrite`` false, that as well.

    An interrupted replacement of the folder is undone or completed first.
    """
    _put_back(target)
    present = _names_in(target)
    exports = {name for name in present if (target / name).is_dir() and _is_export(target / name)}
    _refuse_sweep(str(target), present, exports, overwrite)


@contextmanager
def landed(to: str | Path, overwrite: bool, *, of_sweep: bool = False) -> Iterator[Path]:
    """Yield a folder on this disk for the export; if ``to`` is an address, its files are uploaded there afterwards.

    In a store, descriptions are deleted first and uploaded last, so that an interrupted export is never taken for one.

    Args:
        to: Folder, or address in an object store.
        overwrite: Replace an earlier export of the same kind.
        of_sweep: Whether a sweep is exported, rather than one encoder.
    """
    remote = remote_at(to)
    if remote is None:
        yield Path(to)
        return
    store = Store(remote)
    present = set(store.names())
    (_refuse_stored_sweep if of_sweep else _refuse_stored_encoder)(store, remote.address, present, overwrite)
    cache_folder().mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=cache_folder(), prefix="export-") as folder:
        made = Path(folder) / "export"
        yield made
        _replace_stored(store, present, made)


def _replace_stored(store: Store, present: set[str], made: Path) -> None:
    """Replace the files of an earlier export by the new ones.

    Args:
        present: Files of the earlier export.
        made: Folder with the new files.
    """
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


def _refuse_stored_encoder(store: Store, where: str, present: set[str], overwrite: bool) -> None:
    described = DESCRIPTION in present and _is_description(store.read(DESCRIPTION))
    _refuse_encoder(where, present, described, overwrite)


def _refuse_stored_sweep(store: Store, where: str, present: set[str], overwrite: bool) -> None:
    inside: dict[str, set[str]] = {}
    for name in present:
        first, _, rest = name.partition("/")
        inside.setdefault(first, set()).add(rest)
    exports = {
        first
        for first, rest in inside.items()
        if DESCRIPTION in rest and rest <= _OF_ENCODER and _is_description(store.read(f"{first}/{DESCRIPTION}"))
    }
    _refuse_sweep(where, set(inside), exports, overwrite)


def _refuse_encoder(where: str, present: set[str], is_described: bool, overwrite: bool) -> None:
    if not present:
        return
    if foreign := sorted(present - _OF_ENCODER):
        raise UserError(f"{where}: holds other files, got {', '.join(foreign[:3])}; choose a new or empty folder")
    if not is_described:
        raise UserError(
            f"{where}: is not an earlier export, got no {DESCRIPTION} of ebclab; choose a new or empty folder"
        )
    if not overwrite:
        raise UserError(
            f"{where}: already holds an exported encoder; choose another folder, or replace it by --overwrite"
        )


def _refuse_sweep(where: str, present: set[str], exports: set[str], overwrite: bool) -> None:
    if not present:
        return
    foreign = sorted(present - set(LEADERBOARD) - exports)
    if foreign or not present >= set(LEADERBOARD):
        got = ", ".join(foreign[:3]) or f"no {LEADERBOARD[0]}"
        raise UserError(f"{where}: is not an earlier export of a sweep, got {got}; choose a new or empty folder")
    if not overwrite:
        raise UserError(
            f"{where}: already holds exported encoders; choose another folder, or replace them by --overwrite"
        )


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder next to ``target``, which then replaces ``target``; until then ``target`` is unchanged.

    Between the two renames of the swap ``target`` does not exist. If the process is killed there, ``present_folder``
    finds the old folder, and the next export restores it.
    """
    try:
        with new_folder(target) as aside:
            yield aside
            if target.exists():
                rename(target, _retired(target))
    finally:
        _put_back(target)


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


def _is_export(path: Path) -> bool:
    return _names_in(path) <= _OF_ENCODER and _describes_encoder(path / DESCRIPTION)


def _describes_encoder(path: Path) -> bool:
    try:
        return _is_description(read_regular(path, LARGEST))
    except OSError:
        return False


def _is_description(content: bytes) -> bool:
    """Return whether a file is a description of exported weights."""
    try:
        description = json_value(content)
    except ValueError:
        return False
    return isinstance(description, dict) and "format_version" in description
