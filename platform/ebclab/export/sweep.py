"""Exports the winners of a sweep as encoder folders, with a leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebclab.config.addresses import expanded
from ebclab.errors import UserError
from ebclab.export.formats import Format
from ebclab.export.leaderboard import (
    Leaderboard,
    LeaderboardRow,
    confirmed_places,
    lines_for,
    unconfirmed_places,
    write_leaderboard,
)
from ebclab.export.place import refuse_occupied_by_others, replaced_folder
from ebclab.export.run import export_run
from ebclab.storage.object_store import Store
from ebclab.sweeps.folder import SweepFolder

_UNCONFIRMED = (
    "not confirmed: ranked by one run of one seed, and by the very value that the search chose it by, "
    "which is too high on average"
)


@dataclass(frozen=True)
class SweepExport:
    """The files of an exported sweep."""

    folder: Path  # path of the export
    places: list[LeaderboardRow]  # the exported rows of the leaderboard, best first
    notes: list[str]  # warnings for the user, one line for each row and reason


def is_sweep(path: str | Path) -> bool:
    """Return whether ``path``, a folder or an address, is a sweep."""
    folder = SweepFolder.at(path)
    return folder.plan.is_file() if folder.remote is None else Store(folder.remote).stored(folder.plan.name) is not None


def export_sweep(
    path: str | Path,
    to: str | Path,
    *,
    top: int = 1,
    unconfirmed: bool = False,
    formats: Sequence[Format] = (),
    overwrite: bool = False,
) -> SweepExport:
    """Write the encoders of the best ``top`` confirmed settings of a sweep into ``to``, atomically.

    Each is a folder ``<rank>-<trial>`` with the weights of the first confirming seed, so no seed is selected by score.

    Args:
        path: Sweep folder, or its address in an object store.
        unconfirmed: Export the best trials of the search instead; the sweep may be unfinished.
        formats: Formats to write in addition to the weights.
        overwrite: Replace an earlier export of a sweep there.
    """
    sweep = SweepFolder.at(path).of("reader").pull_all()
    plan = sweep.read_plan()
    board = (unconfirmed_places if unconfirmed else confirmed_places)(sweep, plan)
    chosen = _best(board, top)
    _require_weights(sweep, chosen)
    target = expanded(str(to)).resolve()
    refuse_occupied_by_others(target, overwrite)
    notes = []
    try:
        with replaced_folder(target) as aside:
            for place in chosen:
                _, warnings = export_run(
                    sweep.run(place.run),
                    aside / place.folder,
                    formats=formats,
                    title=f"{board.sweep}, rank {place.rank}: {place.trial}",
                    sweep_lines=lines_for(board, place),
                    remarks=[] if board.is_confirmed else [_UNCONFIRMED],
                )
                notes += [f"{place.folder}: {note}" for note in warnings]
            write_leaderboard(aside, board, chosen)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"{target}: cannot be written, got {reason}; choose another folder or free some space"
        ) from error
    return SweepExport(target, chosen, notes)


def _best(board: Leaderboard, top: int) -> list[LeaderboardRow]:
    if top < 1:
        raise UserError(f"--top: at least one, got {top}")
    if top > len(board.places):
        what = "were confirmed" if board.is_confirmed else "have measured anything"
        raise UserError(f"--top: more than {what}, got {top} of {len(board.places)}; use at most {len(board.places)}")
    return board.places[:top]


def _require_weights(sweep: SweepFolder, places: Sequence[LeaderboardRow]) -> None:
    gone = [place for place in places if not sweep.run(place.run).newest_checkpoint()]
    if gone:
        raise UserError(
            f"{sweep.run(gone[0].run).address}: the weights of rank {gone[0].rank} are gone, got no checkpoint; "
            "were they deleted, by hand or by `ebclab runs clean`?"
        )
