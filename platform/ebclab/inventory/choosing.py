"""Filtering and sorting of lists of runs and sweeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

from ebclab.config.names import did_you_mean
from ebclab.errors import UserError
from ebclab.inventory.listing import Entry, State

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
    """Return the selected entries, sorted; entries with an unknown sort value come last.

    Args:
        entries: Runs and sweeps.
        method: Select entries of this method; None means all.
        dataset: Select entries of this dataset; None means all.
        state: Select entries in this state; None means all.
        sort: A key of ``ORDERS``.
    """
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
