"""Runs side by side in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len

from ebclab.formatting import count, folded, in_cell, row_lines
from ebclab.reports.runs.facts import differing, events_in_words, facts, num_apart
from ebclab.runs.record import RunRecord

_NARROWEST = 18  # minimum width in cells of a run's column; runs that do not fit continue in another table below
_BETWEEN = 2


def side_by_side(records: Sequence[RunRecord], width: int) -> list[str]:
    """Return the lines of a table with a column for each run: facts, then the settings that differ, then events.

    Args:
        records: The runs.
        width: Width of a line in cells.
    """
    told = [facts(record) for record in records]
    names = dict.fromkeys(name for each in told for name in each)
    rows = {name: [each.get(name, "") for each in told] for name in names}
    rows = {"run": [record.name for record in records]} | {name: row for name, row in rows.items() if any(row)}
    rows, differences = _in_cells(rows), _in_cells(differing(records))
    label = min(max(map(cell_len, (*rows, *differences))), max(width // 2 - _BETWEEN, 1))
    at_once = max((width - label) // (_NARROWEST + _BETWEEN), 1)
    lines: list[str] = []
    for start in range(0, len(records), at_once):
        part = slice(start, start + at_once)
        room = max((width - label) // len(records[part]) - _BETWEEN, 1)
        lines += _table({name: row[part] for name, row in rows.items()}, label, room)
        if differences:
            lines += ["", "settings that differ"]
            lines += _table({key: row[part] for key, row in differences.items()}, label, room)
        lines.append("")
    if apart := num_apart(records):
        lines += [*folded(f"and {count(apart, 'setting')} that not all of these methods have: config.yaml", width), ""]
    for record in records:
        if events := events_in_words(record):
            lines += [f"events of {in_cell(record.name)}"]
            lines += [f"  {line}" for event in events for line in folded(in_cell(event), max(width - 2, 1))]
            lines.append("")
    return lines


def _in_cells(rows: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {in_cell(name): [in_cell(text) for text in row] for name, row in rows.items()}


def _table(rows: Mapping[str, Sequence[str]], label: int, room: int) -> list[str]:
    """Return the lines of a table with wrapped cells; unknown values are shown as a dash."""
    lines = []
    for name, row in rows.items():
        cells = [folded(name, label), *(folded(text or "-", room) for text in row)]
        lines += row_lines(cells, [label, *([room] * len(row))], _BETWEEN)
    return lines
