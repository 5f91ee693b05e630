"""Runs side by side in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len

from ebclab.document.document import Block, Items, Remark, Table
from ebclab.formatting import count
from ebclab.reports.runs.facts import differing, events_in_words, facts, num_apart
from ebclab.runs.record import RunRecord

_NARROWEST = 18  # minimum width in cells of a run's column; runs that do not fit continue in another table below
_BETWEEN = 2


def side_by_side(records: Sequence[RunRecord], width: int) -> Iterator[Block]:
    """Yield tables with a column for each run, of facts and of the settings that differ, then the events.

    Args:
        width: Width of a line in cells.
    """
    told = [facts(record) for record in records]
    rows = {name: [each.get(name, "") for each in told] for name in dict.fromkeys(key for each in told for key in each)}
    rows, differences = {name: row for name, row in rows.items() if any(row)}, differing(records)
    label = min(max(map(cell_len, (*rows, *differences))), width // 2)
    at_once = max((width - label) // (_NARROWEST + _BETWEEN), 1)
    for start in range(0, len(records), at_once):
        part = slice(start, start + at_once)
        names = [record.name for record in records[part]]
        yield _table("", names, rows, part)
        if differences:
            yield _table("settings that differ", names, differences, part)
    if apart := num_apart(records):
        yield Remark(f"and {count(apart, 'setting')} that not all of these methods have: config.yaml")
    for record in records:
        if events := events_in_words(record):
            yield Items(tuple(events), f"events of {record.name}")


def _table(title: str, names: Sequence[str], rows: Mapping[str, Sequence[str]], part: slice) -> Table:
    lines = tuple((name, *(text or "-" for text in row[part])) for name, row in rows.items())
    return Table(title, ("run", *names), lines)
