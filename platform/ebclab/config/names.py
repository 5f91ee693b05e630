"""Suggestions for a misspelt name, and the check of a folder's name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from os.path import isdir
from pathlib import Path

from ebclab.config.addresses import LOCATIONS, shortened
from ebclab.errors import UserError

CLOSE_ENOUGH = 0.6  # smallest difflib ratio of two names that are considered similar
LONGEST_NAME = 200
"""Longest name of a folder, bytes: file systems allow 255, and a folder has a longer name while it is being made."""


def nearest(name: str, names: Iterable[str], cutoff: float = CLOSE_ENOUGH) -> str | None:
    """Return the one of ``names`` that is most similar to ``name``, ignoring case, or None if none is similar.

    Args:
        name: What was written.
        names: What could have been written.
        cutoff: Smallest similarity, from 0 (anything) to 1 (equal).
    """
    by_lower = {known.lower(): known for known in names}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of an error message: ``did you mean X? Known: a, b, c``, without the question if none is similar.

    Args:
        name: What was written.
        names: What could have been written, in the order to print.
    """
    known = list(names)
    close = nearest(name, known)
    question = f"did you mean {close}? " if close else ""
    return f"{question}{'Known' if close else 'known'}: {', '.join(known) or 'none'}"


def no_such_dataset(name: str, catalogue: Iterable[str]) -> str:
    """Return the error message for an unknown dataset name, with the nearest known one.

    Args:
        name: What was written.
        catalogue: Names of datasets that need no location.
    """
    word, colon, path = name.partition(":")
    plain, kinds = word.lower().replace("_", "-"), [location[:-1] for location in LOCATIONS]
    close = nearest(plain, kinds if colon else catalogue)
    if colon and close:
        hint = f"did you mean {close}:{shortened(path) or 'PATH'}?"
    elif plain in kinds:
        hint = f"it is named by its place, {plain}:PATH"
    elif close:
        hint = f"did you mean {close}?"
    elif isdir(name):
        hint = (
            f"it is a folder: write folder:{name} for image files in it, "
            f"or parquet:{name} for what `ebclab data prepare` wrote"
        )
    else:
        hint = f"known are {', '.join([*catalogue, *(f'{kind}:PATH' for kind in kinds)])}"
    return f"no such dataset, got {shortened(repr(name))}; {hint}"


def other_folder(named: str, holds: str, otherwise: str) -> str:
    """Return the end of an error message: which folder may be meant instead of one that lacks a file.

    Args:
        named: The folder, or its address in a store, where nothing is searched.
        otherwise: Text if no folder inside it, or of a similar name beside it, holds such a file.
    """
    path = Path(named)
    inside = sorted(file.parent for file in path.glob(f"*/{holds}"))
    beside = {file.parent.name for file in path.parent.glob(f"*/{holds}")} - {path.name}
    if inside:
        return f"name one of those in it, such as {inside[0]}"
    close = nearest(path.name, beside)
    return f"did you mean {path.with_name(close)}?" if close else otherwise


def is_folder_name(name: str) -> bool:
    """Return whether a name is valid for a folder: it contains no path and is not too long."""
    if not name or name.startswith(".") or not name.isprintable() or not {"/", "\\", "?"}.isdisjoint(name):
        return False
    return len(name.encode()) <= LONGEST_NAME


def require_folder_name(name: str, where: str = "--name") -> str:
    """Return the user's name of a run or a sweep, after checking that it is valid for a folder.

    Args:
        where: The option that it was given by, for messages.
    """
    if (length := len(name.encode(errors="replace"))) > LONGEST_NAME:
        raise UserError(
            f"{where}: longer than {LONGEST_NAME} bytes, got {length} ({shortened(name)}); choose a shorter one"
        )
    if not is_folder_name(name):
        raise UserError(
            f"{where}: not the name of a folder, got {shortened(repr(name))}; leave out /, \\, ? and a dot "
            "at its beginning, and name the folder around it by --runs, --sweeps or --comparisons"
        )
    return name
