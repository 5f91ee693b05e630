"""Resolve names, folders and addresses of runs, sweeps and comparisons."""

from __future__ import annotations

from pathlib import Path

from ebclab.config.addresses import is_address
from ebclab.config.names import did_you_mean, is_folder_name
from ebclab.errors import RunError
from ebclab.inventory.listing import run_paths
from ebclab.storage.kinds import COMPARISON, RUN, SWEEP
from ebclab.storage.object_store import holds
from ebclab.storage.remote import remote_at, remote_in


def places_of(names: list[str], runs: str) -> list[str | Path]:
    """Return paths or addresses of runs, without duplicates.

    A name in ``runs`` takes precedence over a folder of the same name. Addresses are returned unchecked.

    Args:
        names: Names of runs in ``runs``, folders or addresses.
        runs: A folder of runs, or its address.
    """
    found = {name: _place(name, runs) for name in names}
    known = [] if remote_at(runs) else [path.name for path in run_paths(Path(runs))]
    problems = [
        f"{name}: no run of this name in {runs}, and no run there; {did_you_mean(name, known)}"
        for name, place in found.items()
        if place is None
    ]
    if problems:
        raise RunError("\n".join(problems))
    return list(dict.fromkeys(place for place in found.values() if place is not None))


def place_named(name: str) -> str:
    """Return where a run, sweep or comparison of this name is in ./runs, ./sweeps or ./comparisons, or else the name.

    A file or folder of this name takes precedence.
    """
    if is_folder_name(name) and not Path(name).exists():
        for kind in (RUN, SWEEP, COMPARISON):
            if holds(place := f"{kind.name}s/{name}", kind.settings):
                return place
    return name


def _place(name: str, runs: str) -> str | Path | None:
    if is_address(name):
        return name
    if is_folder_name(name):
        if (remote := remote_in(runs, name)) is not None:
            return remote.address if holds(remote.address, RUN.settings) else None
        if holds(Path(runs) / name, RUN.settings):
            return Path(runs) / name
    return Path(name) if holds(name, RUN.settings) else None
