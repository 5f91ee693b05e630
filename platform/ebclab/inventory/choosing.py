"""Chooses runs and sweeps: by name, by what they are of, in an order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

from ebclab.config.addresses import is_address
from ebclab.config.names import did_you_mean, is_folder_name
from ebclab.errors import RunError, UserError
from ebclab.inventory.listing import Entry, State, run_paths
from ebclab.storage.kinds import COMPARISON, KINDS, RUN, SWEEP
from ebclab.storage.object_store import holds
from ebclab.storage.remote import remote_at, remote_in

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
        ("--method", method, _names(entry.content.method for entry in entries if entry.content)),
        ("--dataset", dataset, _names(entry.content.data for entry in entries if entry.content)),
    ):
        if given is not None and given not in names:
            problems.append(f"{option}: nothing here has it, got {given}; {did_you_mean(given, names)}")
    if problems:
        raise UserError("\n".join(problems))
    kept = [
        entry
        for entry in entries
        if (method is None or (entry.content and entry.content.method == method))
        and (dataset is None or (entry.content and entry.content.data == dataset))
        and state in (None, entry.state)
    ]
    order = ORDERS[sort]
    known = [entry for entry in kept if order(entry) is not None]
    return sorted(known, key=order) + [entry for entry in kept if order(entry) is None]


def _names(names: Iterable[str]) -> list[str]:
    return sorted(set(names))


def _negated(value: float | None) -> float | None:
    return None if value is None else -value


def places_of(names: list[str], runs: str) -> list[str | Path]:
    """Return paths or addresses of runs, which are named by names in the folder ``runs``, folders or addresses.

    A name in ``runs`` takes precedence over a folder of the same name. Addresses are returned unchecked.
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
    from ebclab.encoders.weights import DESCRIPTION  # imports torch

    return any((path / file).is_file() for file in (*(kind.settings for kind in KINDS.values()), DESCRIPTION))
