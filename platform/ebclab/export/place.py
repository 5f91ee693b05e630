"""Where exports go: folders that appear whole or not at all, and never in place of anything but an earlier export."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ebclab.encoders.weights import DESCRIPTION, WEIGHTS
from ebclab.errors import UserError
from ebclab.export.formats import MODEL_FILES
from ebclab.storage.home import home_at
from ebclab.storage.store import Store, send
from ebclab.training.atomic import new_folder

CARD = "README.md"
LEADERBOARD = ("leaderboard.json", "leaderboard.csv")


def refuse_occupied(target: Path, overwrite: bool) -> None:
    """Refuse a folder that holds anything but an earlier export of one encoder, and that too unless ``overwrite``.

    Raises:
        UserError: It may not be replaced.
    """
    present = _names_in(target)
    if not present:
        return
    if foreign := sorted(present - {WEIGHTS, DESCRIPTION, CARD, *MODEL_FILES.values()}):
        raise UserError(f"{target}: holds other files, got {', '.join(foreign[:3])}; choose a new or empty folder")
    if not _describes_encoder(target / DESCRIPTION):
        raise UserError(
            f"{target}: is not an earlier export, got no {DESCRIPTION} of ebclab; choose a new or empty folder"
        )
    if not overwrite:
        raise UserError(f"{target}: already holds an exported encoder; choose another folder or ask to overwrite it")


def refuse_occupied_by_others(target: Path, overwrite: bool) -> None:
    """Refuse a folder that holds anything but an earlier export of a sweep, and that too unless ``overwrite``.

    Raises:
        UserError: It may not be replaced.
    """
    present = _names_in(target)
    if not present:
        return
    foreign = sorted(name for name in present - set(LEADERBOARD) if not _is_export(target / name))
    if foreign or not present >= set(LEADERBOARD):
        got = ", ".join(foreign[:3]) or f"no {LEADERBOARD[0]}"
        raise UserError(f"{target}: is not an earlier export of a sweep, got {got}; choose a new or empty folder")
    if not overwrite:
        raise UserError(f"{target}: already holds exported encoders; choose another folder or ask to overwrite them")


@contextmanager
def landed(to: str | Path, overwrite: bool) -> Iterator[Path]:
    """Yield the folder on this disk to export to; what is made there goes to ``to`` when that is an address.

    Args:
        to: Folder, or address in an object store.
        overwrite: Replace an earlier export.

    Raises:
        UserError: Something lies there that may not be replaced, or the store refuses.
    """
    home = home_at(to)
    if home is None:
        yield Path(to)
        return
    store = Store(home)
    present = store.names()
    if present and not ({DESCRIPTION, LEADERBOARD[0]} & present.keys() and overwrite):
        raise UserError(f"--to: there is something already, got {to}; give a new folder, or --overwrite an export")
    shutil.rmtree(home.copy, ignore_errors=True)
    home.copy.parent.mkdir(parents=True, exist_ok=True)
    yield home.copy
    made = [path.relative_to(home.copy).as_posix() for path in sorted(home.copy.rglob("*")) if path.is_file()]
    send(home, *made)
    for name in present.keys() - set(made):
        store.delete(name)
    shutil.rmtree(home.copy)


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """Yield a folder beside ``target`` to fill and put it in the place of ``target``, which stays whole until then."""
    retired = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        with new_folder(target) as aside:
            yield aside
            if target.exists():
                target.rename(retired)
    finally:
        if retired.exists() and target.exists():
            shutil.rmtree(retired, ignore_errors=True)
        elif retired.exists():
            retired.rename(target)


def _names_in(target: Path) -> set[str]:
    try:
        return {path.name for path in target.iterdir()} if target.exists() else set()
    except OSError as error:
        raise UserError(f"{target}: is not a folder that can be read ({error}); choose another") from error


def _is_export(path: Path) -> bool:
    known = {WEIGHTS, DESCRIPTION, CARD, *MODEL_FILES.values()}
    return path.is_dir() and _names_in(path) <= known and _describes_encoder(path / DESCRIPTION)


def _describes_encoder(path: Path) -> bool:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "format_version" in content
