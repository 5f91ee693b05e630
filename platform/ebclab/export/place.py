"""Puts exports in place: a folder appears whole or not at all, and replaces nothing but an earlier export."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ebclab.encoders.weights import DESCRIPTION, WEIGHTS
from ebclab.errors import UserError
from ebclab.export.formats import MODEL_FILES
from ebclab.export.timm_config import TIMM_CONFIG
from ebclab.regular_file import read_regular
from ebclab.storage.atomic import new_folder, remove_folder
from ebclab.storage.object_store import Store
from ebclab.storage.reading import LARGEST, json_value
from ebclab.storage.remote import cache_folder, remote_at

CARD = "README.md"
LEADERBOARD = ("leaderboard.json", "leaderboard.csv")
_OF_ENCODER = {WEIGHTS, DESCRIPTION, CARD, TIMM_CONFIG, *MODEL_FILES.values()}


def refuse_occupied(target: Path, overwrite: bool) -> None:
    """Refuse a folder that holds anything but an earlier export of one encoder, and that too unless ``overwrite``.

    Raises:
        UserError: It may not be replaced.
    """
    _put_back(target)
    present = _names_in(target)
    _refuse_encoder(str(target), present, _describes_encoder(target / DESCRIPTION), overwrite)


def refuse_occupied_by_others(target: Path, overwrite: bool) -> None:
    """Refuse a folder that holds anything but an earlier export of a sweep, and that too unless ``overwrite``.

    Raises:
        UserError: It may not be replaced.
    """
    _put_back(target)
    present = _names_in(target)
    exports = {name for name in present if (target / name).is_dir() and _is_export(target / name)}
    _refuse_sweep(str(target), present, exports, overwrite)


@contextmanager
def landed(to: str | Path, overwrite: bool, *, of_sweep: bool = False) -> Iterator[Path]:
    """Yield a folder on this disk for the export; its files are uploaded to ``to`` when that is an address.

    A folder's description is deleted first and uploaded last, so that a broken-off export does not count as an export.

    Args:
        to: Folder, or address in an object store.
        overwrite: Replace an earlier export of the same kind.
        of_sweep: A sweep is exported, not one encoder.

    Raises:
        UserError: Something lies there that may not be replaced, or the store refuses.
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
    """Replace the files of an earlier export by those that were made.

    Args:
        store: Where it goes.
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
    """Return 0 for a file that other files need not wait for, more for one that makes an export of those before it."""
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
    """Yield a folder beside ``target`` to fill and put it in the place of ``target``, which stays whole until then.

    Between the two renames of the swap ``target`` does not exist: ``present_folder`` finds it, and the next export puts
    it back.
    """
    try:
        with new_folder(target) as aside:
            yield aside
            if target.exists():
                target.rename(_retired(target))
    finally:
        _put_back(target)


def present_folder(target: Path) -> Path:
    """Return where the export at ``target`` lies: there, or aside when a process was killed while it replaced it."""
    retired = _retired(target)
    return retired if retired.exists() and not target.exists() else target


def _put_back(target: Path) -> None:
    """Undo a swap that ended before the new folder was in its place; remove the old folder when it is."""
    retired = _retired(target)
    if retired.exists() and target.exists():
        remove_folder(retired)
    elif retired.exists():
        retired.rename(target)


def _retired(target: Path) -> Path:
    whole = target.absolute()  # "." has no name of its own
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
    """Return whether a file is a description that this package writes beside weights."""
    try:
        description = json_value(content)
    except ValueError:
        return False
    return isinstance(description, dict) and "format_version" in description
